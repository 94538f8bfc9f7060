"""The audit's page as a person's browser shows it, and its folder on the disk."""

import dataclasses
import json
import shutil

import pandas as pd
import pytest

from tests.data.audit.conftest import cross, tissue
from tests.data.conftest import save, write_busi
from tests.records.contents import content
from usvit.data.audit import MAX_PAIRS
from usvit.data.audit.audit_dataset import find_faults
from usvit.data.datasets.cards import load_cards
from usvit.data.datasets.manifest import build_manifest
from usvit.data.near_duplicates import NearDuplicate
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.progress import NoProgress
from usvit.reports import audit_page as report

pytestmark = pytest.mark.slow

HOSTILE = '"><img src=x onerror=alert(1)> {{ 7 * 7 }}'


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """26 images, among them a copy with calipers, and identical ones with two labels; one has a hostile name."""
    root = write_busi(tmp_path_factory.mktemp("busi"))
    scan, twice = tissue(40), tissue(41)
    for image_id, pixels in {
        "benign (1)": scan,
        "benign (2)": cross(cross(scan, 120, 90), 260, 170),
        "benign (4)": twice,
        "malignant (1)": twice,
    }.items():
        label = image_id.split()[0]
        save(pixels, root / label / f"{image_id}.png")
        save(pixels * 0, root / label / f"{image_id}_mask.png")
    found = find_faults(build_manifest("busi", {"": root}, NoProgress()), load_cards("busi"), NoProgress())
    table = found.manifest.table.replace({"image_id": {"benign (2)": HOSTILE}})
    return dataclasses.replace(found, manifest=dataclasses.replace(found.manifest, table=table))


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    out = tmp_path_factory.mktemp("audits") / "busi"
    report.write_audit(result, out, "usvit data audit --dataset busi")
    return out


def test_three_files_and_nothing_else_are_written_and_the_keep_list_is_the_tables(result, folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(report.FILES)
    assert [path.name for path in folder.parent.iterdir()] == ["busi"]
    assert json.loads((folder / "audit.json").read_text()) == result.record.content()
    keep = pd.read_csv(folder / "keep.csv", dtype=str, keep_default_na=False)
    assert keep.equals(result.keep)
    assert sha256_of_file(folder / "keep.csv") in (folder / "audit.html").read_text()


def test_pairs_stand_side_by_side_with_what_is_needed_to_judge_them(visit, folder):
    page = visit(folder / "audit.html")
    conflict = page.locator("#conflicts li")
    assert conflict.count() == 1
    assert "identical, similarity 1.000" in conflict.inner_text()
    assert [text.split("\n")[:2] for text in conflict.locator("figcaption").all_inner_texts()] == [
        ["benign (4)", "benign"],
        ["malignant (1)", "malignant"],
    ]
    left, right = (image.bounding_box() for image in conflict.locator("img").all())
    assert abs(left["y"] - right["y"]) < 2
    assert left["x"] + left["width"] <= right["x"]
    assert min(left["width"], right["width"]) >= 300  # large enough to tell two lesions apart
    assert page.locator("#copies li").count() == 1
    for image in page.locator("img").all():
        image.scroll_into_view_if_needed()
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0


def test_judgements_are_kept_changed_taken_back_and_exported(visit, folder):
    page = visit(folder / "audit.html")
    assert page.inner_text("#judged") == "0 of 2 pairs judged"
    conflict, copy = page.locator("#conflicts li"), page.locator("#copies li")
    conflict.get_by_role("button", name="different").click()
    conflict.get_by_role("button", name="same").click()
    copy.get_by_role("button", name="different").click()
    assert conflict.locator("button[aria-pressed=true]").all_inner_texts() == ["same"]
    with page.expect_download() as download:
        page.get_by_role("button", name="Save judgements").click()
    assert download.value.suggested_filename == "judgements.csv"
    rows = pd.read_csv(download.value.path())[["dataset_1", "image_id_1", "image_id_2", "kind", "judgement"]]
    assert rows.to_numpy().tolist() == [
        ["busi", "benign (4)", "malignant (1)", "identical", "same"],
        ["busi", "benign (1)", HOSTILE, "same frame", "different"],
    ]
    page.reload()
    assert page.inner_text("#judged") == "2 of 2 pairs judged"
    copy.get_by_role("button", name="different").click()
    assert page.inner_text("#judged") == "1 of 2 pairs judged"


def test_a_hostile_name_does_nothing_and_is_seen_as_text(visit, folder):
    page = visit(folder / "audit.html")
    page.wait_for_timeout(200)
    assert HOSTILE in page.inner_text("#copies")
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.parametrize("width", [1280, 400])
def test_without_javascript_the_page_says_all_and_offers_no_dead_buttons(visit, folder, width):
    page = visit(folder / "audit.html", width, javascript=False)
    assert page.locator("li[data-manifest]").count() == 2
    assert page.locator("button:visible").count() == 0
    text = page.inner_text("body")
    assert "This page holds image data" in text
    assert "busi: benign: card 437, found 12" in text
    assert page.locator("body").bounding_box()["width"] <= width
    assert page.locator("svg[role=img]").count() == 3


def test_the_order_of_pairs_can_be_reversed(visit, result, tmp_path):
    pairs = [
        NearDuplicate(0, 1, 0.7, "same frame"),
        NearDuplicate(2, 4, 0.9, "same frame"),
        NearDuplicate(5, 6, 0.8, "flipped"),
    ]
    report.write_audit(dataclasses.replace(result, pairs=pairs), tmp_path / "a", "")
    page = visit(tmp_path / "a" / "audit.html")
    order = "[...document.querySelectorAll('#copies li')].map(pair => pair.dataset.similarity)"
    assert page.evaluate(order) == ["0.7", "0.8", "0.9"]
    page.get_by_role("button", name="Reverse").click()
    assert page.evaluate(order) == ["0.9", "0.8", "0.7"]


def test_a_page_of_many_pairs_is_bounded_and_says_what_it_leaves_out(result, tmp_path):
    pairs = [NearDuplicate(k % 12, (k % 12 + 1 + k % 11) % 12, 0.9, "same frame") for k in range(2000)]
    report.write_audit(dataclasses.replace(result, pairs=pairs), tmp_path / "a", "")
    page = (tmp_path / "a" / "audit.html").read_text()
    assert page.count("<li data-manifest=") == MAX_PAIRS
    assert "2,000 pairs" in page
    assert "The first 300 are shown" in page
    assert len(page) < 15e6


def test_a_data_set_without_any_finding_has_a_page_too(result, visit, tmp_path):
    none = {"exact_duplicates": [], "duplicate_groups": [], "label_conflicts": [], "flags": {}}
    record = result.record.model_copy(update=none)
    clean = dataclasses.replace(result, record=record, pairs=[], flags=[[] for _ in result.flags])
    report.write_audit(clean, tmp_path / "a", "")
    page = visit(tmp_path / "a" / "audit.html")
    assert page.locator("li[data-manifest]").count() == 0
    assert page.locator(".tools").count() == 0


def test_the_same_images_are_audited_anew_and_a_users_own_file_stays(result, folder, tmp_path):
    out = shutil.copytree(folder, tmp_path / "busi")
    (out / "judgements.csv").write_text("mine")
    (out / "audit.html").write_text("old")
    report.write_audit(result, out, "usvit data audit --dataset busi")
    assert (out / "judgements.csv").read_text() == "mine"
    assert (out / "audit.html").read_bytes() == (folder / "audit.html").read_bytes()


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(folder, tmp_path):
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("mine")
    audits = shutil.copytree(folder, tmp_path / "other images")
    (audits / "audit.json").write_text(json.dumps(content("audit", manifest_sha256="0" * 64)))
    root = write_busi(tmp_path / "busi")
    for out, words in (
        (other, "is not an audit"),
        (other / "chapter.txt", "is not an audit"),
        (audits, "other images"),
    ):
        with pytest.raises(UsvitError, match=words):
            report.audit("busi", data_root={"": root}, out=out)
    assert [path.name for path in other.iterdir()] == ["chapter.txt"]


def test_nothing_is_left_behind_when_the_disk_is_full(result, small_disk):
    fill = small_disk / "fill"
    fill.write_bytes(b"0" * 900_000)
    with pytest.raises(UsvitError, match="No space left"):
        report.write_audit(result, small_disk / "audits" / "busi", "")
    assert not (small_disk / "audits" / "busi").exists()
    assert list((small_disk / "audits").iterdir()) == []
