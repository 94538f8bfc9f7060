"""A scored set against labels: external testing of a frozen model, recalibration."""
