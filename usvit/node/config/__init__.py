"""The configuration of a node."""
