"""Abstention: where no decision is made, and that it is said in each table and report."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.scoring.dicom_out.product_cases import SCORER
from tests.scoring.dicom_out.product_cases import row as product_row
from tests.scoring.scored import CLASSES, JOB, POSITIVE, THRESHOLD, failed, portions, row
from usvit.errors import UsvitError
from usvit.records import AbstentionZone, ConformalFit
from usvit.scoring.abstention import decide_or_abstain, zone_of
from usvit.scoring.dicom_out.findings import finding_of
from usvit.scoring.dicom_out.overlay import caption_lines
from usvit.scoring.tables.writer import write_tables

ZONE = AbstentionZone(low=0.2, high=0.5, origin="stated")


def fit(positive_from, rest_up_to, reason=None):
    def bound(value):
        return {"bound": value, "n_groups": 12, "n_needed": 9, "coverage": None}

    sets = {"alpha": 0.1, "guarantee": "every image", "positive": bound(positive_from), "rest": bound(rest_up_to)}
    return SimpleNamespace(conformal=ConformalFit.model_validate({**sets, "reason": reason}), source="c.json")


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.19, ("not malignant", "")), (0.2, ("", "uncertain")), (0.499, ("", "uncertain")), (0.5, ("malignant", ""))],
)
def test_a_probability_in_the_zone_gets_no_decision(value, told):
    assert decide_or_abstain(value, 0.3, "malignant", ZONE) == told


def test_an_unusual_image_is_unusual_first_and_without_a_threshold_nothing_is_abstained_from():
    assert decide_or_abstain(0.3, 0.3, "malignant", ZONE, refused=True) == ("", "unusual")
    assert decide_or_abstain(None, 0.3, "malignant", None, refused=True) == ("", "unusual")
    assert decide_or_abstain(0.3, None, "malignant", ZONE, refused=True) == ("", "")


@pytest.mark.parametrize(("first", "last"), [(0.1, 0.6), (0.6, 0.1), (0.35, 0.9), (0.05, 0.2)])
def test_outside_the_zone_the_set_holds_exactly_the_class_that_is_decided(first, last):
    zone = zone_of("conformal", 0.3, fit(first, last), "malignant")
    for value in np.linspace(0, 1, 1001):
        own = {name for name, there in (("malignant", value >= first), ("not malignant", value <= last)) if there}
        decision, abstained = decide_or_abstain(float(value), 0.3, "malignant", zone)
        if abstained:
            assert (
                own != {"malignant" if value >= 0.3 else "not malignant"}
                or min(abs(value - first), abs(value - last)) < 1e-6
            )
        else:
            assert own == {decision}


@pytest.mark.parametrize(
    ("text", "threshold", "calibration", "said"),
    [
        ("0.6", 0.3, None, "the lower and the upper end"),
        ("0.6,0.4", 0.3, None, "the lower and the upper end"),
        ("-1,0.4", 0.3, None, "the lower and the upper end"),
        ("nan,0.4", 0.3, None, "the lower and the upper end"),
        ("0.4,0.6", 0.3, None, "outside this zone"),
        ("0.1,0.6", None, None, "has no threshold"),
        ("conformal", 0.3, None, "needs --calibration"),
        ("conformal", 0.3, fit(None, None, "there are 3 patients"), "there are 3 patients"),
    ],
)
def test_what_gives_no_zone_is_refused_with_the_reason(text, threshold, calibration, said):
    with pytest.raises(UsvitError, match=said):
        zone_of(text, threshold, calibration, "malignant")


def write(out, rows, **settings):
    told = {"threshold": THRESHOLD, "threshold_origin": "by hand", "classes": CLASSES, "positive": POSITIVE}
    return write_tables(out, portions(rows), failed(), JOB, **told, **settings).content()


def abstaining(item, prob, **changes):
    decision, abstained = decide_or_abstain(prob, THRESHOLD, POSITIVE, ZONE, refused=changes.get("unusual", False))
    return row(item, prob=prob, decision=decision, **changes) | {"abstained": abstained}


def test_images_studies_and_patients_in_the_zone_are_abstained_from_and_the_counts_add_up(tmp_path):
    # Items 0 to 2 are study 0; 3 to 5 study 1; both are patient 0. Items 6 to 8: study 2 of patient 1.
    probs = [0.1, 0.15, 0.12, 0.9, 0.1, 0.3, 0.9, 0.8, 0.4]
    rows = [abstaining(item, prob) for item, prob in enumerate(probs)]
    rows.append(abstaining(12, 0.95, unusual=True))
    summary = write(tmp_path, rows, abstain=True, zone=ZONE)
    counts = summary["counts"]
    assert (counts["frames_abstained"], counts["frames_uncertain"], counts["frames_undecided"]) == (3, 2, 3)
    assert counts["frames_positive"] + counts["frames_negative"] + counts["frames_abstained"] == counts["frames_scored"]
    assert summary["abstention"] == {"low": 0.2, "high": 0.5, "origin": "stated"}
    scores = pd.read_csv(tmp_path / "scores.csv", keep_default_na=False)
    assert scores["abstained"].tolist() == ["", "", "", "", "", "uncertain", "", "", "uncertain", "unusual"]
    assert (scores["decision"] == "").tolist() == (scores["abstained"] != "").tolist()
    studies = pd.read_csv(tmp_path / "studies.csv", keep_default_na=False).set_index("study_id")
    found = [tuple(studies.loc[rows[at]["study_id"], ["decision", "abstained"]]) for at in (0, 3, 6, 9)]
    # The mean of study 1 is 0.43; a study with unusual images alone has no mean.
    assert found == [("not malignant", ""), ("", "uncertain"), ("malignant", ""), ("", "unusual")]
    patients = pd.read_csv(tmp_path / "patients.csv", keep_default_na=False).set_index("patient_id")
    assert patients.loc[rows[0]["patient_id"], "abstained"] == "uncertain"  # (0.37 + 1.3) / 6 = 0.28
    assert patients.loc[rows[0]["patient_id"], "n_used"] == 6  # uncertain images count in the mean


def test_a_picture_says_why_there_is_no_decision():
    one = finding_of(product_row("a" * 16, decision="", abstained="uncertain"), SCORER)
    assert "no decision (uncertain image), threshold 0.400" in caption_lines(one, SCORER, 1, "")
