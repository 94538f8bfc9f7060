"""The protocols are the papers'."""

import pytest

from usvit.errors import UsvitError
from usvit.models.spec import PROTOCOLS as HOW_MEASURED
from usvit.models.zoo import ZOO, find_model
from usvit.upstream.bench.protocols import PRINTED_GAINS, PROTOCOLS, find_protocol


def test_the_three_of_the_thesis_differ_in_batch_and_precision():
    deit, resmlp, deit3 = (PROTOCOLS[name] for name in ("deit", "resmlp", "deit3"))
    assert (deit.search, deit.repeats, deit.precision) == ("largest", 30, "fp32")
    assert (resmlp.search, resmlp.batch, resmlp.precision) == ("none", 32, "fp32")
    assert (deit3.search, deit3.batch, deit3.precision) == ("none", 256, "bf16")


@pytest.mark.parametrize("name", ["deit", "resmlp", "deit3", "sweep"])
def test_each_paper_s_own_figures_are_in_the_zoo(name):
    figures = PROTOCOLS[name].figures
    assert figures in HOW_MEASURED
    assert any(figures in printed.images_per_second for spec in ZOO.values() for printed in spec.paper)


def test_one_network_has_two_speeds_by_two_protocols():
    speeds = {key: value for printed in find_model("deit_s").paper for key, value in printed.images_per_second.items()}
    assert speeds[PROTOCOLS["deit"].figures] == pytest.approx(940, abs=1)
    assert speeds[PROTOCOLS["deit3"].figures] == pytest.approx(1891, abs=1)


@pytest.mark.parametrize("model", PRINTED_GAINS)
def test_the_printed_gains_belong_to_the_printed_speeds(model):
    (speeds,) = (printed.images_per_second for printed in find_model(model).paper if "Table 4" in printed.table)
    for batch, gain in PRINTED_GAINS[model].items():
        sequential, parallel = speeds[f"v100_batch{batch}_seq"], speeds[f"v100_batch{batch}_par"]
        best = max(sequential, parallel) / sequential - 1
        assert float(gain.rstrip("%")) == pytest.approx(100 * best, abs=1.0)  # made before rounding


def test_an_unknown_protocol_gets_the_nearest():
    with pytest.raises(UsvitError, match="Nearest: sweep"):
        find_protocol("sweeep")
