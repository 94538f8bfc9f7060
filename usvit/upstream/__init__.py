"""Upstream work: pre-training, sources, transfer, tests of classifiers, speed, shapes and paper studies."""
