"""From files to images, in worker processes that may hang or crash."""
