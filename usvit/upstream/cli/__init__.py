"""Commands of upstream work."""
