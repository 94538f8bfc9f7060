"""The audit of a data set (``run``): what is wrong with it before any model has seen it."""
