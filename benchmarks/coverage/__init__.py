"""Simulations of studies whose truth is known: how often intervals contain it, and how often tests reject.

``python -m benchmarks.coverage TABLE`` prints one table. A table is a list of rows (what is simulated) and a function
that simulates one study of a row and returns the intervals of usvit with their true values.
"""
