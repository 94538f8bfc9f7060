"""Tables of what was scored and what was not."""
