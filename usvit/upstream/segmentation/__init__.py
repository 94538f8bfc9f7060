"""Segmentation as a transfer: heads on the feature maps of a network, trained and tested in grouped folds."""
