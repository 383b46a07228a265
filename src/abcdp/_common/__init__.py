"""What every room uses: files, storage, progress, the version, words that are safe to show."""
