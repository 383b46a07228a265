"""Pages and pictures of what is public."""
