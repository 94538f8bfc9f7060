"""The run of a pre-training: its set-up, batches, validation and results."""
