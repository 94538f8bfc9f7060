"""Which cases are shown, and when their pictures may be."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.records.contents import content
from tests.reports.conftest import fake_run
from usvit.data.datasets.cards import load_cards
from usvit.data.datasets.locate import open_dataset
from usvit.data.io.image_hashes import pixel_sha256
from usvit.errors import UsvitError
from usvit.files import write_json
from usvit.progress import NoProgress
from usvit.reports import Options, write_report
from usvit.reports.cases import find_cases
from usvit.reports.run_files import read_run
from usvit.reports.saliency_images import SaliencyImages, read_explained
from usvit.reports.thumbnails import Pictures, may_show

pytestmark = pytest.mark.slow


def cases(run_dir, roots=None, include=False):
    run = read_run(run_dir)
    return find_cases(run, Pictures(run, roots, include), read_explained(run_dir))


@pytest.fixture
def phantom_run(tmp_path, small_phantom) -> Path:
    """A run whose images are those of a phantom that lies on the disk."""

    def change(record):
        record["data"]["datasets"] = ["phantom"]
        record["config"]["data"]["dataset"] = "phantom"

    run_dir = fake_run(tmp_path / "run", n=40, change=change)
    records = open_dataset(load_cards("phantom")[0], {"": small_phantom}, NoProgress())[1]
    manifest = pd.read_parquet(run_dir / "manifest.parquet").assign(dataset="phantom")
    manifest["path"] = [str(record.path) for record in records[:40]]
    manifest["sha256"] = [
        pixel_sha256(np.asarray(Image.open(small_phantom / path).convert("RGB"))) for path in manifest["path"]
    ]
    manifest.to_parquet(run_dir / "manifest.parquet", index=False)
    for path in [run_dir / "predictions.csv", run_dir / "folds.csv", *run_dir.glob("fold-*/predictions.csv")]:
        pd.read_csv(path).assign(dataset="phantom").to_csv(path, index=False)
    return run_dir


def test_errors_come_most_confident_first_and_uncertain_cases_by_their_margin(run_dir):
    found = cases(run_dir)
    table = pd.read_csv(run_dir / "predictions.csv")
    prob = table[["prob_benign", "prob_malignant", "prob_normal"]].to_numpy()
    decided = np.array(["benign", "malignant", "normal"])[prob.argmax(1)]
    wrong = table.assign(top=prob.max(1), decided=decided)[decided != table["label"]].sort_values(
        "top", ascending=False
    )
    assert found.n_errors == len(wrong)
    assert [one.image_id for one in found.confident_errors] == wrong["image_id"].head(8).tolist()
    assert [one.decision for one in found.confident_errors] == wrong["decided"].head(8).tolist()
    ordered = np.sort(prob, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    assert [one.image_id for one in found.uncertain] == table["image_id"].iloc[np.argsort(margin)[:8]].tolist()


def test_one_group_is_listed_once(tmp_path):
    found = cases(fake_run(tmp_path / "run", patients=200))
    for one in (found.confident_errors, found.uncertain):
        assert len(one) == len({case.group_id for case in one}) == 8


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("CC-BY-4.0", True), ("CC0-1.0", True), ("CC-BY-NC-4.0", True), ("CC-BY-NC-SA-4.0", True),
        ("Apache-2.0", True), ("MIT", True),
        ("CC-BY-ND-4.0", False), ("CC-BY-NC-ND-4.0", False), ("unclear", False), ("LicenseRef-hospital", False),
    ],
)  # fmt: skip
def test_only_a_licence_that_allows_copies_shows_images(licence, allowed):
    assert may_show(licence) is allowed


def test_images_with_an_open_licence_are_shown_where_they_are_found(phantom_run, small_phantom, visit):
    assert "<img" not in write_report(phantom_run).read_text()
    page = write_report(phantom_run, Options(roots={"": small_phantom}))
    assert page.stat().st_size < 5e6
    shown = visit(page)
    pictures = shown.locator("#cases img")
    assert pictures.count() == len(cases(phantom_run, {"": small_phantom}).confident_errors) + 8
    assert all(
        shown.evaluate("[...document.querySelectorAll('#cases img')].map(i => i.complete && i.naturalWidth > 0)")
    )
    assert pictures.first.get_attribute("alt").startswith("Image ")
    assert "licence Apache-2.0" in shown.inner_text("#cases")


def test_a_file_that_has_changed_is_not_shown(phantom_run, small_phantom):
    manifest = pd.read_parquet(phantom_run / "manifest.parquet")
    manifest.assign(sha256="0" * 64).to_parquet(phantom_run / "manifest.parquet", index=False)
    (first, *_) = cases(phantom_run, {"": small_phantom}).uncertain
    assert (first.picture, first.why_no_picture) == (None, "the file has changed since the run")


def test_an_unclear_licence_hides_images_unless_the_user_asks(run_dir, real_data):
    found = cases(run_dir, {"": real_data})
    assert not [one for one in found.uncertain if one.picture]
    assert "the licence of busi (unclear) does not allow it" in found.uncertain[0].why_no_picture
    assert Pictures(read_run(run_dir), {"": real_data}, include=True).reasons == []


def test_a_root_without_the_data_set_is_told(phantom_run, tmp_path):
    with pytest.raises(UsvitError, match="nowhere does not exist"):
        write_report(phantom_run, Options(roots={"": tmp_path / "nowhere"}))


def explain(run_dir, case, *, shows_image, file="map.png"):
    folder = run_dir / "explain"
    folder.mkdir(exist_ok=True)
    Image.new("RGB", (448, 224), "red").save(folder / "map.png")
    record = content("explain")
    maps = record["methods"]["gradcam"]
    own = {"dataset": case.dataset, "image_id": case.image_id, "file": file, "class": "malignant"}
    maps["images"] = [maps["images"][0] | own | {"shows_image": shows_image, "blank": False}]
    write_json(folder / "explain.json", record | {"methods": {"gradcam": maps}})


def test_saliency_stands_with_its_case_and_obeys_the_licence(run_dir):
    case = cases(run_dir).confident_errors[0]
    explain(run_dir, case, shows_image=False)
    (method, picture), *rest = cases(run_dir).confident_errors[0].saliency
    assert (method, rest) == ("Grad-CAM for malignant", [])
    assert picture.startswith("data:image/jpeg;base64,")
    text = write_report(run_dir).read_text()
    assert text.count("<img") == 1
    assert "Grad-CAM of 1 test image" in text
    explain(run_dir, case, shows_image=True)
    assert cases(run_dir).confident_errors[0].saliency == ()
    assert len(cases(run_dir, include=True).confident_errors[0].saliency) == 1


def test_explain_json_cannot_lead_out_of_its_folder(run_dir):
    explain(run_dir, cases(run_dir).confident_errors[0], shows_image=False, file="../../secret.png")
    with pytest.raises(UsvitError, match=r"key methods\.gradcam\.images\.0\.file"):
        cases(run_dir)


def test_a_missing_or_broken_picture_and_a_foreign_file_do_not_stop_the_page(run_dir):
    case = cases(run_dir).confident_errors[0]
    explain(run_dir, case, shows_image=False)
    (run_dir / "explain" / "map.png").write_bytes(b"no picture")
    assert cases(run_dir).confident_errors[0].saliency == ()
    (run_dir / "explain" / "explain.json").write_text(json.dumps({"schema_version": "2.0"}))
    with pytest.raises(UsvitError, match=r"explain\.json"):
        cases(run_dir)
    assert SaliencyImages().sentences == []
