"""External tests: copies of what was seen are refused, copies of one frame are one group, and what is said of it."""

import base64

import pandas as pd
import pytest

from tests.data.near_duplicates.planting import jpeg, resized
from tests.scoring.make_scores import evaluated, make_scores
from usvit.data.io.decoding import read_image
from usvit.data.near_duplicates import describe, find_near_duplicates
from usvit.data.near_duplicates.compact import CompactDescriptions
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.data.splits.groups import group_ids
from usvit.data.splits.seen_files import copies_of_seen, joined
from usvit.errors import LeakageError, UsvitError
from usvit.files import read_json, write_json
from usvit.progress import NoProgress
from usvit.scoring.calibration import read_calibration
from usvit.scoring.external.evaluation import evaluate_scores
from usvit.scoring.external.labels import LabelTable
from usvit.scoring.external.recalibration import recalibrate
from usvit.scoring.external.scored_set import groups_of, read_scored_set
from usvit.scoring.items import DESCRIPTION
from usvit.scoring.leakage import marked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    root = write_phantom(PhantomSpec(n=24, size=256, seed=9), tmp_path_factory.mktemp("x") / "phantom", workers=1)
    table = pd.read_csv(root / "phantom.csv", keep_default_na=False).drop_duplicates("patient_id")
    return [describe(read_image(root / path)) for path in table.path], [read_image(root / path) for path in table.path]


@pytest.fixture(scope="module")
def copied(originals):
    """Ten images: six originals, and copies of the first four stored again."""
    described, pixels = originals
    again = [describe(change) for change in (jpeg(pixels[0], 90), resized(pixels[1], 0.5), pixels[2][:, ::-1].copy())]
    return [*described[:6], *again, describe(pixels[3][2:-2, 2:-2])]


def bytes_of(description):
    return CompactDescriptions.of([description]).to_bytes()


def scored_with(descriptions, tmp_path, home, seen=None, **options):
    """A scored set of one image a patient, which have these descriptions in turn."""

    def change(rows):
        hashes = [one.sha256 for one in descriptions]
        return rows.assign(pixel_sha256=hashes, **{DESCRIPTION: [bytes_of(one) for one in descriptions]})

    truth = make_scores(
        tmp_path / "scores", key=home / "key", n_patients=len(descriptions), per_patient=1, failed=0, change=change,
        **options,
    )  # fmt: skip
    truth.to_csv(tmp_path / "labels.csv", index=False)
    if seen is not None:
        summary = read_json(tmp_path / "scores" / "summary.json")
        summary["model"]["seen"] = seen
        write_json(tmp_path / "scores" / "summary.json", summary)
    return tmp_path / "scores", LabelTable(tmp_path / "labels.csv", join="item_id", key=home / "key")


def test_an_external_test_has_the_groups_that_a_training_on_the_same_images_has(copied):
    rows = pd.DataFrame(
        {
            "item_id": [f"i{k}" for k in range(10)], "study_id": "", "patient_id": "", "flags": "",
            "pixel_sha256": [one.sha256 for one in copied],
        }
    )  # fmt: skip
    table = pd.DataFrame({"dataset": "d", "image_id": rows.item_id, "patient_id": None, "sha256": rows.pixel_sha256})
    training = group_ids(table, find_near_duplicates(copied, NoProgress()))
    external = groups_of(rows, {one.sha256: CompactDescriptions.of([one]) for one in copied})
    assert len(set(training)) == len(set(external)) == 6
    assert pd.crosstab(pd.Series(training), pd.Series(external)).gt(0).sum().eq(1).all(), "the very same division"
    assert len(set(groups_of(rows))) == 10, "without descriptions, identical pixels alone join"
    blank = rows.assign(flags="blank")
    assert len(set(groups_of(blank, {one.sha256: CompactDescriptions.of([one]) for one in copied}))) == 10


def test_groups_joined_by_copies_count_once_in_the_figures(copied, tmp_path):
    folder, labels = scored_with(copied, tmp_path, tmp_path)
    metrics, _ = evaluated(folder, labels)
    assert (metrics["n_images"], metrics["n_groups"]) == (10, 6)
    (folder / "copies.parquet").unlink()
    metrics, _ = evaluated(folder, labels)
    assert metrics["n_groups"] == 10 and metrics["external"]["seen"]["found"] == "none by exact hash"


def test_rows_of_copies_of_seen_images_are_marked_and_refused_as_identical_ones_are(originals, copied, tmp_path):
    described, _ = originals
    seen = CompactDescriptions.of(described[:2])
    rows = [
        {"pixel_sha256": one.sha256, "seen": False, DESCRIPTION: base64.b64encode(bytes_of(one)).decode()}
        for one in copied
    ] + [{"pixel_sha256": "0" * 64, "seen": True, DESCRIPTION: ""}]
    (portion,) = marked([rows], lambda tested: set(copies_of_seen(tested, seen)))
    assert [row["seen"] for row in portion] == [True, True, *[False] * 4, True, True, False, False, True]
    assert portion[0][DESCRIPTION] == bytes_of(copied[0]) and portion[-1][DESCRIPTION] == b""
    with pytest.raises(UsvitError, match="not valid base64"):
        list(marked([[{"pixel_sha256": "a", "seen": False, DESCRIPTION: "%"}]], lambda tested: set()))


def test_a_copy_of_an_image_that_a_calibration_was_fitted_on_cannot_judge_it(originals, copied, tmp_path):
    described, _ = originals
    (tmp_path / "fit").mkdir()
    folder, labels = scored_with(described[:6], tmp_path / "fit", tmp_path)
    record = recalibrate(folder, labels, out=tmp_path / "calibration.json", n_resamples=5)
    assert record.seen.found == "none"
    fit = read_calibration(tmp_path / "calibration.json")
    assert fit.describes_all and len(fit.fitted_on_copies) == 6
    (tmp_path / "test").mkdir()
    others = [*copied[6:8], *described[6:10]]  # two copies, four new images; other patients by name
    folder, labels = scored_with(others, tmp_path / "test", tmp_path / "fit")
    with pytest.raises(LeakageError, match=r"The calibration .* has seen images of 2 groups \(2 of 6 labelled"):
        evaluate_scores(folder, labels, calibration=tmp_path / "calibration.json")
    metrics, _ = evaluated(folder, labels, calibration=tmp_path / "calibration.json", drop_seen=True)
    assert metrics["n_images"] == 4 and metrics["external"]["counts"]["seen_images_left_out"] == 2
    write_json(tmp_path / "bad.json", read_json(tmp_path / "calibration.json") | {"fitted_on_copies": "AAAA"})
    with pytest.raises(UsvitError, match=r"bad\.json is damaged: key fitted_on_copies"):
        read_calibration(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("seen", "found", "words"),
    [
        (
            {"known": "copies", "n_descriptions": 7, "n_hashes": 7, "gaps": []},
            "none",
            "No image, and no near-duplicate of one",
        ),
        (
            {
                "known": "hashes",
                "n_descriptions": 0,
                "n_hashes": 7,
                "gaps": [{"part": "upstream", "known": "hashes", "what": "7 of imagenet"}],
            },
            "none by exact hash",
            "no near-duplicate descriptions of 7 of imagenet",
        ),
        (
            {
                "known": "nothing",
                "n_descriptions": 7,
                "n_hashes": 7,
                "gaps": [{"part": "upstream", "known": "nothing", "what": "hub weights x"}],
            },
            "not known",
            "not on record which images were seen in training: hub weights x",
        ),
    ],
    ids=["copies", "hashes", "hub"],
)
def test_no_copy_is_claimed_only_where_everything_was_compared(originals, tmp_path, seen, found, words):
    folder, labels = scored_with(originals[0][:6], tmp_path, tmp_path, seen)
    metrics, _ = evaluated(folder, labels)
    check = metrics["external"]["seen"]
    assert check["found"] == found and words in check["answer"]
    assert any(check["answer"] in warning for warning in metrics["warnings"]) == (found != "none")


def test_a_damaged_file_of_descriptions_is_named(originals, tmp_path):
    folder, _ = scored_with(originals[0][:6], tmp_path, tmp_path)
    table = pd.read_parquet(folder / "copies.parquet")
    table.assign(**{DESCRIPTION: None}).to_parquet(folder / "copies.parquet")
    with pytest.raises(UsvitError, match=r"copies\.parquet is not the file whose SHA-256"):
        read_scored_set(folder)
    summary = read_json(folder / "summary.json")
    del summary["files"]["copies.parquet"]  # whoever changes a file may change what is on record of it
    write_json(folder / "summary.json", summary)
    for content in (b"x" * 9000, b"damaged", joined({}).to_bytes()):
        table.assign(**{DESCRIPTION: content}).to_parquet(folder / "copies.parquet")
        with pytest.raises(UsvitError, match=r"copies\.parquet"):
            read_scored_set(folder)
