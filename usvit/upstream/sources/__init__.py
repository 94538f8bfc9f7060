"""Sources of labelled and unlabelled images for upstream work."""
