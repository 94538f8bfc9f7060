"""Comparison of a scored set with labels: external test of a frozen model, and recalibration."""
