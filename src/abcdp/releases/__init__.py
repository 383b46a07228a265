"""What an owner hands out, and how it is put together."""
