"""Wall time of phases."""

import pytest

from usvit.training import phases
from usvit.training.phases import PhaseTimes


def test_phases_add_up_in_their_order_even_after_an_error(monkeypatch):
    clock = iter([10.0, 12.5, 20.0, 20.26, 30.0, 41.0])
    monkeypatch.setattr(phases.time, "monotonic", lambda: next(clock))
    times = PhaseTimes()
    with times.phase("prediction"):
        pass
    with pytest.raises(ValueError, match="full"), times.phase("files"):
        raise ValueError("full")
    with times.phase("prediction"):
        pass
    times.add("training", 55.04)
    assert times.rounded() == {"prediction": 13.5, "files": 0.3, "training": 55.0}
    assert times.line() == "prediction 14 s, files 0.26 s, training 55 s"
