"""What usvit logs while a test runs."""

import logging


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]):
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def record_messages() -> list[str]:
    """A list that gets each message from now on; ``tests.conftest`` removes all handlers after the test."""
    lines: list[str] = []
    logger = logging.getLogger("usvit")
    logger.addHandler(_Lines(lines))
    logger.setLevel(logging.INFO)
    return lines
