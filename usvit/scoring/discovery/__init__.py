"""Discovery of the files to score in folders, globs, archives and lists of files."""
