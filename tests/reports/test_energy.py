"""Energy: a named power times the time, or no number."""

import pytest

from tests.records.contents import content
from usvit.records import RunRecord
from usvit.reports.energy import BOARD_POWER, energy_estimate


def record(name, kind, seconds=(1800.0, 1800.0)):
    whole = content("run")
    results = [whole["results"][0] | {"fold": fold, "seconds": each} for fold, each in enumerate(seconds)]
    return RunRecord.model_validate(whole | {"device": {"name": name, "type": kind}, "results": results})


@pytest.mark.parametrize(
    ("name", "watts"),
    [
        ("NVIDIA H200", 700),
        ("NVIDIA H100 PCIe", 350),
        ("NVIDIA H100 80GB HBM3", 700),
        ("NVIDIA A100-SXM4-80GB", 400),
        ("NVIDIA A100 80GB PCIe", 300),
        ("NVIDIA L4", 72),
        ("NVIDIA L40S", 350),
        ("Tesla T4", 70),
    ],
)
def test_a_known_gpu_gives_an_upper_bound_with_its_assumption(name, watts):
    energy = energy_estimate(record(name, "cuda"))
    assert energy.kwh == pytest.approx(watts / 1000)  # one hour in all
    assert f"{watts} W (board power of {name}" in energy.text
    assert energy.text.startswith("at most")


def test_what_is_not_known_is_not_guessed():
    for one in (
        record("AMD EPYC", "cpu"),
        record("NVIDIA L40", "cuda"),
        record("NVIDIA GeForce RTX 3090 Ti", "cuda"),
        record("NVIDIA H200", "cuda", seconds=()),
    ):
        energy = energy_estimate(one)
        assert energy.kwh is None
        assert energy.text.startswith("not supplied")


def test_the_users_own_figure_goes_before_any_table():
    energy = energy_estimate(record("NVIDIA H200", "cuda"), 120.0, "wall meter")
    assert energy.kwh == pytest.approx(0.12)
    assert "120 W (supplied: wall meter) x 1 h" in energy.text


def test_no_name_in_the_table_hides_a_later_one():
    names = list(BOARD_POWER)
    assert not [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if a in b]
