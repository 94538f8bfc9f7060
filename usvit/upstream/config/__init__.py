"""Settings of upstream trainings, transfers and tests, and of their sweeps."""
