"""What was scored and what was not, as tables."""
