"""Benchmarks: speed and memory of networks by the papers' protocols, each measured in its own process."""
