import json
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from usvit.data.phantom import GENERATOR_VERSION, PhantomSpec, write_phantom
from usvit.errors import UsvitError
from usvit.files import ABANDONED_AFTER_S
from usvit.progress import NoProgress

pytestmark = pytest.mark.slow

SMALL = PhantomSpec(n=12, size=64)
TINY = PhantomSpec(n=3, size=64)


class Watched(NoProgress):
    """Calls a function with the number of images done."""

    def __init__(self, update):
        self.update = update


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_phantom(SMALL, tmp_path_factory.mktemp("phantom") / "set")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def table_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "phantom.csv", keep_default_na=True)


def grey(folder: Path, path: str) -> np.ndarray:
    with Image.open(folder / path) as image:
        assert image.mode == "L"
        return np.asarray(image)


@pytest.mark.parametrize("workers", [1, 3])
def test_same_spec_gives_the_same_bytes_whatever_the_workers(folder, tmp_path, workers):
    assert contents(write_phantom(SMALL, tmp_path / "again", workers=workers)) == contents(folder)


def test_another_seed_gives_other_images(folder, tmp_path):
    other = write_phantom(PhantomSpec(**dict(SMALL) | {"seed": 1}), tmp_path / "other")
    images = [{data for name, data in contents(f).items() if not name.endswith("_mask.png")} for f in (folder, other)]
    assert not images[0] & images[1]


def test_folder_holds_what_the_table_says_and_nothing_else(folder):
    table = table_of(folder)
    assert len(table) == SMALL.n
    assert table.image_id.is_unique
    assert list(table.image_id) == sorted(table.image_id)
    named = {*table.path, *table.mask_path, "phantom.csv", "phantom.json", "texts.csv"}
    assert set(contents(folder)) == named
    assert list(table.path) == [f"{row.label}/{row.image_id}.png" for row in table.itertuples()]
    assert (table.groupby("patient_id").label.nunique() == 1).all()
    assert not table[["text", "calipers"]].any(axis=None)
    assert table.duplicate_of.isna().all()


def test_masks_and_signs_are_there_for_lesions_and_empty_for_normal_images(folder):
    for row in table_of(folder).itertuples():
        mask = grey(folder, row.mask_path)
        assert mask.shape == grey(folder, row.path).shape == (64, 64)
        assert set(np.unique(mask)) == ({0} if row.label == "normal" else {0, 255})
        signs = [value for name, value in row._asdict().items() if name.startswith(("sign_", "lesion_"))]
        assert len(signs) == 11
        assert np.isnan(signs).all() if row.label == "normal" else np.isfinite(signs).all()


def test_texts_describe_the_signs_of_each_image(folder):
    texts = pd.read_csv(folder / "texts.csv").set_index("image_id")
    table = table_of(folder).set_index("image_id")
    assert list(texts.index) == list(table.index) and texts.text.notna().all()
    normal = table.label == "normal"
    assert texts.loc[normal, "shape"].isna().all() and texts.loc[~normal].notna().all(axis=None)
    lesions = table[~normal]
    taller = texts.loc[lesions.index, "orientation"] == "not parallel"
    assert (taller == (lesions.sign_orientation >= 1)).all()


def test_description_names_spec_version_and_sources(folder):
    found = json.loads((folder / "phantom.json").read_text())
    of_units = {"views", "lesions", "exams", "sign_views"}  # not mentioned without views
    assert found["spec"] | {"scanner": ""} == SMALL.model_dump(exclude=of_units)
    assert found["generator_version"] == GENERATOR_VERSION
    assert sum(found["class_counts"].values()) == found["n_images"] == SMALL.n
    assert any("Jensen" in source for source in found["sources"])


def test_a_chosen_scanner_is_recorded_and_is_the_device_of_every_image(tmp_path):
    spec = PhantomSpec(n=3, seed=1, size=64, scanner="looks=1,frequency_mhz=7")
    folder = write_phantom(spec, tmp_path / "chosen", workers=1)
    assert json.loads((folder / "phantom.json").read_text())["spec"]["scanner"] == "frequency_mhz=7,looks=1"
    table = table_of(folder)
    assert set(table.device) == {"frequency_mhz=7,looks=1"} and set(table.frequency_mhz) == {7.0}


def test_without_lesions_images_are_those_of_the_healthy_and_labels_stay(folder, tmp_path):
    ablated = write_phantom(PhantomSpec(**dict(SMALL) | {"ablate": "lesion"}), tmp_path / "ablated")
    before, after = table_of(folder), table_of(ablated)
    assert list(before.label) == list(after.label)
    for row in after.itertuples():
        assert not grey(ablated, row.mask_path).any()
        same = (ablated / row.path).read_bytes() == (folder / row.path).read_bytes()
        assert same == (row.label == "normal")


def test_without_lesions_the_label_does_not_reach_a_single_pixel(tmp_path, monkeypatch):
    spec = PhantomSpec(**dict(SMALL) | {"ablate": "lesion", "calipers": 1.0, "text": 1.0})
    folders = [write_phantom(spec, tmp_path / "as-dealt")]
    # The same patients, all classes dealt again.
    monkeypatch.setattr("usvit.data.phantom.plan.CLASS_SHARE", {"normal": 0.6, "benign": 0.2, "malignant": 0.2})
    folders.append(write_phantom(spec, tmp_path / "dealt-again"))
    tables = [table_of(f).set_index("image_id") for f in folders]
    assert (tables[0].label != tables[1].label).any()
    for image_id in tables[0].index:
        data = [(f / t.loc[image_id, "path"]).read_bytes() for f, t in zip(folders, tables, strict=True)]
        assert data[0] == data[1]


def test_marks_are_recorded_and_visible_and_leave_unmarked_images_alone(folder, tmp_path):
    spec = PhantomSpec(**dict(SMALL) | {"near_duplicates": 0.25, "text": 0.5, "calipers": 0.5})
    marked = write_phantom(spec, tmp_path / "marked")
    table = table_of(marked)
    assert table.text.sum() == table.calipers.sum() == 6
    assert table.duplicate_of.notna().sum() == 3
    for row in table.itertuples():
        touched = row.text or row.calipers or isinstance(row.duplicate_of, str)
        same = (marked / row.path).read_bytes() == (folder / row.path).read_bytes()
        assert same != touched


def test_progress_counts_every_image_to_the_end(tmp_path):
    seen: list[int] = []
    write_phantom(TINY, tmp_path / "set", progress=Watched(seen.append))
    assert seen[-1] == 3
    assert seen == sorted(seen)


def test_a_folder_with_files_is_refused_and_left_as_it_was(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsvitError, match="not empty"):
        write_phantom(TINY, tmp_path / "mine")
    assert contents(tmp_path) == {str(Path("mine", "thesis.txt")): b"years of work"}


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "set").write_text("a file")
    with pytest.raises(UsvitError, match="is a file"):
        write_phantom(TINY, tmp_path / "set")
    assert (tmp_path / "set").read_text() == "a file"


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "deep" / "set").mkdir(parents=True)
    assert len(table_of(write_phantom(TINY, tmp_path / "deep" / "set"))) == 3
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["set"]


def test_an_interrupted_run_leaves_nothing_behind(tmp_path):
    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_phantom(SMALL, tmp_path / "set", progress=Watched(interrupt))
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_run_are_cleared_and_those_of_a_running_one_are_not(tmp_path):
    abandoned, busy = tmp_path / ".set.partial-1-old", tmp_path / ".set.partial-2-new"
    for leftover in (abandoned, busy):
        (leftover / "benign").mkdir(parents=True)
    past = time.time() - ABANDONED_AFTER_S - 60
    for path in (abandoned / "benign", abandoned):
        os.utime(path, (past, past))
    out = write_phantom(TINY, tmp_path / "set")
    assert len(table_of(out)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [busy.name, "set"]


def test_of_two_runs_at_once_with_one_spec_the_slower_takes_what_it_finds(tmp_path):
    out = tmp_path / "set"

    def overtake(done: int) -> None:
        if done == TINY.n:
            write_phantom(TINY, out)

    assert write_phantom(TINY, out, progress=Watched(overtake)) == out
    assert len(table_of(out)) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_of_two_runs_at_once_with_two_specs_the_slower_fails_and_overwrites_nothing(tmp_path):
    out = tmp_path / "set"
    other = PhantomSpec(**dict(TINY) | {"seed": 9})

    def overtake(done: int) -> None:
        if done == TINY.n:
            write_phantom(other, out)

    with pytest.raises(UsvitError, match="not empty"):
        write_phantom(TINY, out, progress=Watched(overtake))
    assert json.loads((out / "phantom.json").read_text())["spec"]["seed"] == 9
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
