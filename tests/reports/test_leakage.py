"""The page's own search for leaks finds what was planted, and says so where it cannot look."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.data.near_duplicates.planting import jpeg
from tests.records.contents import network
from tests.reports.conftest import fake_run
from usvit.data.datasets.manifest_file import DESCRIPTIONS
from usvit.data.io.decoding import read_image
from usvit.data.near_duplicates import describe
from usvit.data.near_duplicates.compact import CompactDescriptions
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.data.splits.leakage import write_seen
from usvit.files import write_csv, write_json
from usvit.records import ModelMetadata, load_record
from usvit.reports import write_report
from usvit.reports.leakage import BY_HASH, leakage_checks
from usvit.reports.run_files import read_run

GROUP, PIXELS, SEEN, UPSTREAM, TESTED = range(5)


@dataclass(frozen=True)
class Before:
    """First weights with metadata."""

    metadata: dict[str, Any]
    path: Path
    unknown_training: None = None
    collections: tuple = ()


def found(run_dir):
    return [check.found for check in leakage_checks(read_run(run_dir))]


@pytest.mark.slow
def test_an_honest_run_passes_and_what_is_not_known_is_not_called_passed(run_dir):
    assert found(run_dir) == [0, 0, 0, None, 0, 0]  # weights of the hub list no images


@pytest.mark.slow
def test_a_group_or_identical_pixels_in_two_parts_are_found(run_dir):
    manifest = pd.read_parquet(run_dir / "manifest.parquet")
    folds = pd.read_csv(run_dir / "folds.csv")
    first = folds[folds["fold"] == 0].drop_duplicates("part").set_index("part")["image_id"]
    twins = manifest["image_id"].isin([first["train"], first["test"]])
    manifest.loc[twins, "group_id"] = "patient:busi:7"
    manifest.to_parquet(run_dir / "manifest.parquet")
    assert found(run_dir)[GROUP] == 1
    assert found(run_dir)[PIXELS] == 0
    manifest.loc[twins, "sha256"] = "0" * 64
    manifest.to_parquet(run_dir / "manifest.parquet")
    assert found(run_dir)[PIXELS] == 1
    assert "PROBLEM" in write_report(run_dir).read_text()


@pytest.mark.slow
def test_a_test_image_that_the_model_or_its_first_weights_had_seen_is_found(run_dir):
    manifest = pd.read_parquet(run_dir / "manifest.parquet").set_index("image_id")
    test = pd.read_csv(run_dir / "predictions.csv")
    path = run_dir / "fold-2" / "model.json"
    metadata = json.loads(path.read_text())
    metadata["seen_sha256"]["train"].append(manifest.loc[test.loc[test["fold"] == 2, "image_id"].iloc[0], "sha256"])
    metadata["seen_sha256"]["upstream"] = manifest.loc[
        test.loc[test["fold"] == 2, "image_id"].iloc[:3], "sha256"
    ].tolist()
    write_json(path, metadata)
    assert found(run_dir) == [0, 0, 1, 3, 0, 0]


@pytest.mark.slow
def test_first_weights_that_learnt_from_images_that_are_not_on_record_are_not_called_innocent(run_dir):
    path = run_dir / "fold-1" / "model.json"
    metadata = json.loads(path.read_text())
    metadata["seen_sha256"] |= {"upstream": ["0" * 64], "unhashed": ["folder"]}
    write_json(path, metadata)
    checks = leakage_checks(read_run(run_dir))
    assert [check.found for check in checks] == [0, 0, 0, None, 0, 0]
    assert "folder" in checks[UPSTREAM].answer and "against the 1 pixel hash" in checks[UPSTREAM].answer


@pytest.mark.slow
def test_predictions_of_another_fold_are_found(run_dir):
    folds = pd.read_csv(run_dir / "folds.csv", dtype={"image_id": str})
    tested = folds.index[folds.part == "test"][0]
    folds.loc[tested, "fold"] = (folds.loc[tested, "fold"] + 1) % 5
    write_csv(run_dir / "folds.csv", folds)
    assert found(run_dir)[TESTED] == 2  # one row too few, one too many


@pytest.mark.slow
@pytest.mark.parametrize("name", ["folds.csv", "manifest.parquet"])
def test_without_the_files_nothing_is_claimed(tmp_path, name):
    run_dir = fake_run(tmp_path / "run")
    (run_dir / name).unlink()
    assert found(run_dir)[GROUP] is None
    assert found(run_dir)[SEEN] is None
    assert "not known" in write_report(run_dir).read_text()


def with_copies(run_dir, fold=1):
    """Give a run whose fold ``fold`` has tested a JPEG copy of an image of its first weights, and all descriptions."""
    rng = np.random.default_rng(0)
    root = write_phantom(PhantomSpec(n=8, size=256, seed=2), run_dir.parent / "phantom", workers=1)
    table = pd.read_csv(root / "phantom.csv", keep_default_na=False).drop_duplicates("patient_id")
    first, second = (read_image(root / path) for path in table.path[:2])
    own, copy, other = (describe(image) for image in (first, jpeg(first, 90), second))
    blank = describe(rng.integers(0, 2, (96, 96, 3), dtype=np.uint8))
    manifest = pd.read_parquet(run_dir / "manifest.parquet")
    test = pd.read_csv(run_dir / "predictions.csv")
    name = test.loc[test["fold"] == fold, "image_id"].iloc[0]
    manifest.loc[manifest["image_id"] == name, "sha256"] = copy.sha256
    # What the other images show does not matter: each has a description under its own hash.
    contents = [replace(blank, sha256=digest) for digest in manifest["sha256"]]
    contents = [copy if one.sha256 == copy.sha256 else one for one in contents]
    manifest[DESCRIPTIONS] = [CompactDescriptions.of([one]).to_bytes() for one in contents]
    manifest.to_parquet(run_dir / "manifest.parquet")
    for number in range(5):
        folder = run_dir / f"fold-{number}"
        metadata = json.loads((folder / "model.json").read_text())
        hashes = {part: metadata["seen_sha256"][part] for part in ("train", "val")}
        digests = [digest for part in hashes.values() for digest in part]
        described = {digest: CompactDescriptions.of([replace(blank, sha256=digest)]) for digest in digests}
        upstream = folder / "upstream"
        upstream.mkdir()
        seen = {one.sha256: CompactDescriptions.of([one]) for one in (own, other)}
        first = write_seen(upstream, {"train": list(seen)}, described=seen).content()
        (upstream / "model.json").write_text(json.dumps(network(**first)))
        before = Before(load_record(upstream / "model.json", ModelMetadata), upstream / "model.safetensors")
        write_json(folder / "model.json", metadata | write_seen(folder, hashes, before, described=described).content())
    return own, copy


@pytest.mark.slow
def test_a_copy_of_a_test_image_that_first_weights_had_seen_is_found(tmp_path):
    run_dir = fake_run(tmp_path / "run", n=60)
    with_copies(run_dir)
    checks = leakage_checks(read_run(run_dir))
    assert checks[UPSTREAM].result == "PROBLEM" and checks[UPSTREAM].found == 1
    assert "1 test images had been seen, 1 of them as near-duplicates with other pixels" in checks[UPSTREAM].answer
    assert checks[SEEN].result == "passed" and checks[SEEN].answer.startswith("No near-duplicate found: ")
    page = write_report(run_dir).read_text()
    assert "No near-duplicate found" in page and "PROBLEM" in page


@pytest.mark.slow
def test_passed_is_said_only_where_everything_that_was_seen_was_compared(tmp_path):
    run_dir = fake_run(tmp_path / "run", n=60)
    _, copy = with_copies(run_dir)
    manifest = pd.read_parquet(run_dir / "manifest.parquet")
    manifest.loc[manifest["sha256"] == copy.sha256, DESCRIPTIONS] = None
    manifest.to_parquet(run_dir / "manifest.parquet")
    checks = leakage_checks(read_run(run_dir))
    assert [checks[k].result for k in (SEEN, UPSTREAM)] == [BY_HASH, BY_HASH], "a tested image has no description"
    assert "without near-duplicate descriptions of 1 test images" in checks[UPSTREAM].answer
    path = run_dir / "fold-3" / "model.json"
    gaps = [{"part": part, "known": "nothing", "what": "weights without metadata"} for part in ("train", "upstream")]
    write_json(path, json.loads(path.read_text()) | {"seen_copies": {"files": [], "gaps": gaps}})
    checks = leakage_checks(read_run(run_dir))
    assert [checks[k].result for k in (SEEN, UPSTREAM)] == ["not known", "not known"], "one network is not on record"
    assert "weights without metadata" in checks[UPSTREAM].answer and "None by exact hash" in checks[UPSTREAM].answer
