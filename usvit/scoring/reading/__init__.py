"""Reading of image files in worker processes, which may hang or crash."""
