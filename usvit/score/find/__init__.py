"""What there is to score: folders, globs, archives, lists of files."""
