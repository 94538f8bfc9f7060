"""Batches of views of pre-training."""
