"""What is made of an image after it was scored is made of that very image, whatever lies under its name by then."""

import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pydicom
import pytest

from tests.scoring.dicom_out.product_cases import KNOWN, SETTINGS, cut_source, make, person, row, rows, scored, swap
from usvit.scoring.items import Frame, ItemFacts, ScoringItem
from usvit.scoring.reading import item_reader
from usvit.scoring.reading.item_reader import file_sha256_of, open_item, read_item

ID = "a" * 16


@pytest.mark.slow
def test_no_product_comes_of_files_that_have_swapped_places(tmp_path):
    ann, eve = person(tmp_path, "ann", 1), person(tmp_path, "eve", 2)
    table = scored(ann, [row(ID)])
    swap(Path(ann.location), Path(eve.location))
    out, products = make(tmp_path, ann, table, keep_ids=True)
    assert {(product.kind, product.path, product.error_code) for product in products} == {
        (kind, None, "changed_since_scoring") for kind in ("sr", "sc", "gsps", "seg", "overlay", "fhir")
    }
    assert not [path for path in out.rglob("*") if path.is_file()]
    swap(Path(ann.location), Path(eve.location))
    out, products = make(tmp_path, ann, table, keep_ids=True)
    assert all(product.path for product in products)
    assert pydicom.dcmread(out / products[0].path).PatientID == "MRN-1"


def test_the_same_holds_in_an_archive(tmp_path):
    paths = [Path(person(tmp_path, name, number).location) for number, name in enumerate(("ann", "eve"))]
    archive = tmp_path / "export.zip"

    def pack(names):
        with zipfile.ZipFile(archive, "w") as file:
            for name, path in zip(names, paths, strict=True):
                file.write(path, name)

    pack(("1.dcm", "2.dcm"))
    item = ScoringItem("export.zip!1.dcm", str(archive), "1.dcm")
    table = scored(item, [row(ID)])
    pack(("2.dcm", "1.dcm"))
    assert {product.error_code for product in make(tmp_path, item, table)[1]} == {"changed_since_scoring"}


@pytest.mark.slow
def test_a_swap_while_products_are_made_is_not_seen(tmp_path, monkeypatch):
    """The bytes are read once: report and capture are of what was scored, though another file lies there by then."""
    item, other = cut_source(tmp_path, 3), person(tmp_path / "b", "eve", 2)
    table = scored(item, rows(ID, 3))
    render = item_reader.Opened.view

    def exchanged(self, number, crop):
        shutil.copy(other.location, item.location)
        return render(self, number, crop)

    monkeypatch.setattr(item_reader.Opened, "view", exchanged)
    out, products = make(tmp_path, item, table, keep_ids=True)
    assert [product.error_code for product in products] == [None] * 10
    for product in products[:2]:
        assert pydicom.dcmread(out / product.path).PatientID == KNOWN["PatientID"]


def test_a_loop_that_is_exchanged_while_its_best_frames_are_sought_gives_those_of_one_file(tmp_path, monkeypatch):
    item, other = cut_source(tmp_path, 6), person(tmp_path / "b", "eve", 2)
    settings = replace(SETTINGS, frames="top:2")
    known = [one for one in read_item(item, settings) if one is not None]
    first = True

    def exchanging(view, _quality=item_reader.quality):
        nonlocal first
        if first:
            os.replace(other.location, item.location)
        first = False
        return _quality(view)

    monkeypatch.setattr(item_reader, "quality", exchanging)
    found = [one for one in read_item(item, settings) if one is not None]
    assert [type(one) for one in found] == [ItemFacts, Frame, Frame]
    assert found[0] == known[0]
    assert [one.pixel_sha256 for one in found[1:]] == [one.pixel_sha256 for one in known[1:]]


def test_a_large_file_is_held_open_and_refused_when_it_is_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(item_reader, "IN_MEMORY", 1000)
    item, other = cut_source(tmp_path, 3), person(tmp_path / "b", "eve", 2)
    sha256 = file_sha256_of(item, SETTINGS)
    with open_item(item, SETTINGS, sha256) as opened:
        expected = opened.view(2, "tissue")
        os.replace(shutil.copy(other.location, tmp_path / "c"), item.location)  # another file under its name
        assert (opened.view(2, "tissue") == expected).all() and opened.facts.patient == KNOWN["PatientID"]
    item = cut_source(tmp_path, 3)
    with open_item(item, SETTINGS, file_sha256_of(item, SETTINGS)) as opened:
        with open(item.location, "ab") as file:
            file.write(b"more")
        with pytest.raises(item_reader.BadImage) as refused:
            opened.view(1, "tissue")
    assert refused.value.code == "changed_since_scoring"
