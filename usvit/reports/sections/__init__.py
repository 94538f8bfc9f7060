"""The sections of the report of a run, of an evaluation, and of what their commands print."""
