"""Wall time of the phases of a fold."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class PhaseTimes:
    """Adds up the wall time of named phases: ``with times.phase("prediction"): ...``."""

    def __init__(self, seconds: Mapping[str, float] | None = None):
        self.seconds: dict[str, float] = dict(seconds or {})

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase, also if the block raises an error."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - begun)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def rounded(self) -> dict[str, float]:
        """Return the seconds of each phase, rounded to a tenth, in the order in which the phases began."""
        return {name: round(seconds, 1) for name, seconds in self.seconds.items()}

    def line(self) -> str:
        """Return ``training 55 s, evaluation 4 s, prediction 0.6 s``."""
        return ", ".join(
            f"{name} {seconds:.2g} s" if seconds < 10 else f"{name} {seconds:.0f} s"
            for name, seconds in self.seconds.items()
        )
