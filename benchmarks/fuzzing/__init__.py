"""Attacks on usvit: hostile files, values, peers and clocks, and how each command ends.

``harness`` has what all suites share, and each of the other modules the inputs of one suite.
"""
