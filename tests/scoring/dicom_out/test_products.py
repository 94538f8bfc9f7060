import io
import pickle
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.datadict import DicomDictionary
from pydicom.dataset import Dataset

from tests.data.conftest import save, speckle, write_dicom
from tests.programs import a_free_port, orthanc_server, said, storescp, tool
from tests.scoring.dicom_out.product_cases import (
    KNOWN,
    ODD_HEADERS,
    SCORER,
    cut_source,
    iod_errors,
    make,
    odd_source,
    order,
    pseudonyms,
    row,
    rows,
    scored,
    source,
)
from usvit.scoring.dicom_out.findings import finding_of, most_suspicious, shown_frames
from usvit.scoring.dicom_out.products import PRODUCT_FAILURES, Product, write_products
from usvit.scoring.items import ScoringItem

ID = "a" * 16


@pytest.mark.slow
def test_files_have_the_items_pseudonym_for_a_name(tmp_path):
    out, products = make(tmp_path, cut_source(tmp_path, 2), rows(ID, 2))
    assert products == [
        Product("sr", f"dicom/{ID}-sr.dcm"),
        Product("sc", f"dicom/{ID}-sc.dcm"),
        Product("gsps", f"dicom/{ID}-gsps.dcm"),
        Product("seg", f"dicom/{ID}-seg-0.dcm"),
        Product("seg", f"dicom/{ID}-seg-1.dcm"),
        Product("overlay", f"overlays/{ID}-0.png"),
        Product("overlay", f"overlays/{ID}-1.png"),
        Product("fhir", f"fhir/{ID}.json"),
    ]
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert found == {product.path for product in products}


def test_what_is_there_is_not_written_again(tmp_path):
    item, table = cut_source(tmp_path), [row(ID)]
    out, products = make(tmp_path, item, table)
    before = {product.path: (out / product.path).stat().st_mtime_ns for product in products}
    (out / f"dicom/{ID}-sc.dcm").unlink()
    _, again = make(tmp_path, item, table)
    assert again == products
    after = {product.path: (out / product.path).stat().st_mtime_ns for product in again}
    assert {path for path in before if before[path] != after[path]} == {f"dicom/{ID}-sc.dcm"}


def test_a_finished_item_is_not_even_read_again(tmp_path):
    item, table = cut_source(tmp_path), [row(ID)]
    _, products = make(tmp_path, item, table)
    Path(item.location).unlink()
    assert make(tmp_path, item, table)[1] == products


def test_a_picture_gets_no_report(tmp_path):
    path = save(speckle(1, 60, 80), tmp_path / "in" / "Jane.jpg")
    out, products = make(tmp_path, ScoringItem("Jane.jpg", str(path)), [row(ID, kind="picture")])
    assert [(product.kind, product.error_code) for product in products] == [
        ("sc", None),
        ("overlay", None),
        ("fhir", None),
    ]
    data = pydicom.dcmread(out / products[0].path)
    assert "SourceImageSequence" not in data and data.LossyImageCompression == "01"
    assert data.PatientID == pseudonyms().item("Jane.jpg")
    assert iod_errors(out / products[0].path) == []


@pytest.mark.slow
def test_a_member_of_an_archive_is_read_from_it(tmp_path):
    item = cut_source(tmp_path)
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(item.location, "Doe/Jane.dcm")
    table = [row(ID)]
    plain, _ = make(tmp_path, item, table, out="plain")
    inside = ScoringItem(item.name, str(archive), "Doe/Jane.dcm")
    zipped, products = make(tmp_path, inside, table, out="zipped")
    for product in products:
        assert (zipped / product.path).read_bytes() == (plain / product.path).read_bytes()


def test_an_item_that_is_gone_has_a_reason_for_each_product(tmp_path):
    _, products = make(tmp_path, ScoringItem("", "", problem="not_found"), rows(ID, 2))
    assert {(one.path, one.error_code) for one in products} == {(None, "not_found")}
    assert {one.kind for one in products} == {"sr", "sc", "gsps", "seg", "overlay", "fhir"}


def test_nothing_comes_of_an_item_without_rows(tmp_path):
    assert make(tmp_path, cut_source(tmp_path), [])[1] == []


@pytest.mark.parametrize("flag", ["text", "burned_in"])
def test_a_frame_with_words_is_drawn_only_where_the_user_keeps_ids_or_it_is_cut_to_the_tissue(tmp_path, flag):
    table = [row(ID, flags=f"calipers;{flag}")]
    whole = source(tmp_path / "whole")
    _, products = make(tmp_path, whole, table, ["sc", "overlay"])
    assert [(product.path, product.error_code) for product in products] == [(None, "burned_in")] * 2
    _, products = make(tmp_path, whole, table, ["sc", "overlay"], keep_ids=True)
    assert [product.error_code for product in products] == [None, None]
    out, products = make(tmp_path, cut_source(tmp_path / "cut"), table, ["sc", "overlay"], out="cut")
    assert [product.error_code for product in products] == [None, None]
    assert Image.open(out / products[1].path).width == 80 * 6  # the region, enlarged


def test_a_whole_picture_with_words_is_not_drawn(tmp_path):
    path = save(speckle(1, 60, 80), tmp_path / "a.png")
    _, (product,) = make(tmp_path, ScoringItem("a.png", str(path)), [row(ID, kind="picture", flags="text")], ["sc"])
    assert product.error_code == "burned_in"


@pytest.mark.parametrize("header", [True, False], ids=["DICOM", "plain"])
def test_without_a_known_tissue_region_no_picture_is_made_unless_it_is_asked_for(tmp_path, header):
    """Not even of an image without a word in it, as far as anyone can tell."""
    if header:
        item, table = source(tmp_path), [row(ID)]
    else:
        path = save(speckle(1, 60, 80), tmp_path / "a.png")
        item, table = ScoringItem("a.png", str(path)), [row(ID, kind="picture")]
    out, products = make(tmp_path, item, table, ["sc", "overlay"], pictures=False)
    assert [(product.path, product.error_code) for product in products] == [(None, "no_region")] * 2
    assert "--pictures" in PRODUCT_FAILURES["no_region"]
    assert not [path for path in out.rglob("*") if path.is_file()]
    assert all(one.path for one in make(tmp_path, item, table, ["sc", "overlay"], out="asked")[1])
    cut = cut_source(tmp_path / "cut")
    assert all(one.path for one in make(tmp_path, cut, [row(ID)], ["sc", "overlay"], out="cut", pictures=False)[1])


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda path: path.unlink(), "not_found"),
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_bytes(path.read_bytes()[:300]), "changed_since_scoring"),
        (lambda path: path.write_bytes(path.read_bytes()[:-2000]), "changed_since_scoring"),
        (lambda path: path.write_text("a poem"), "not_an_image"),
    ],
    ids=["gone", "empty", "cut", "less pixels", "text"],
)
def test_a_source_that_went_bad_costs_its_products_only(tmp_path, spoil, code):
    item = cut_source(tmp_path)
    table = scored(item, [row(ID)])
    spoil(Path(item.location))
    out, products = make(tmp_path, item, table)
    assert [(product.path, product.error_code) for product in products] == [(None, code)] * 6
    assert code in PRODUCT_FAILURES
    assert not [path for path in out.rglob("*") if path.is_file()]


def test_the_frames_that_are_drawn_are_the_most_suspicious(tmp_path):
    table = rows(ID, 9)
    table[3]["calibrated_malignant"] = 1.0
    assert shown_frames(table, SCORER, 3) == [3, 7, 8]
    equal = [finding_of(row(ID, k, p=0.5), SCORER) for k in range(4)]
    assert [one.frame for one in most_suspicious(equal, 2)] == [0, 1]


def test_saliency_is_drawn_for_the_frames_that_have_it(tmp_path):
    item, table = cut_source(tmp_path, 2), rows(ID, 2)
    plain, _ = make(tmp_path, item, table, ["overlay"], out="plain")
    out, _ = make(tmp_path, item, table, ["overlay"], saliency={1: np.eye(32)})
    same = [
        (out / f"overlays/{ID}-{k}.png").read_bytes() == (plain / f"overlays/{ID}-{k}.png").read_bytes() for k in (0, 1)
    ]
    assert same == [True, False]


@pytest.mark.slow
def test_everything_passes_into_a_process_and_back(tmp_path):
    out, products = make(tmp_path, cut_source(tmp_path), [row(ID)])
    work = (order(tmp_path, out), cut_source(tmp_path), [row(ID)], products)
    assert pickle.loads(pickle.dumps(work))[-1] == work[-1]


@pytest.mark.slow
def test_products_know_no_torch():
    modules = "products, presentation_state, secondary_capture, structured_report"
    code = f"import sys; from usvit.scoring.dicom_out import {modules}; print('torch' in sys.modules)"
    assert said(sys.executable, "-c", code).strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD_HEADERS)
def test_odd_headers_give_objects_without_an_error(tmp_path, name):
    tool("dciodvfy")
    out, products = make(tmp_path, odd_source(tmp_path, name), [row(ID)], ["sr", "sc"], keep_ids=True)
    assert [iod_errors(out / product.path) for product in products] == [[], []]


@pytest.mark.slow
def test_objects_of_the_real_files_have_no_error(tmp_path, real_data):
    tool("dciodvfy")
    for keep_ids in (False, True):
        for path in sorted((real_data / "us_dicom").glob("*.dcm")):
            n_frames = int(pydicom.dcmread(path, stop_before_pixels=True).get("NumberOfFrames") or 1)
            item = ScoringItem(path.name, str(path))
            table = rows(pseudonyms().item(item.name), n_frames)
            wanted = ["sr", "sc", "gsps"]
            out, products = make(tmp_path, item, table, wanted, keep_ids=keep_ids, out=f"out-{keep_ids}", most=2)
            seen = (None,) if keep_ids else (None, "burned_in")  # words stand in most of them
            assert products[0].path and products[2].path and products[1].error_code in seen, path.name
            assert not [error for one in products if one.path for error in iod_errors(out / one.path)], path.name


TEXT = ("AE", "CS", "LO", "LT", "PN", "SH", "ST", "UC", "UR", "UT")
NEEDED = {  # to decode the pixels, or to name what the report refers to
    *("SpecificCharacterSet", "PhotometricInterpretation", "NumberOfFrames", "SOPClassUID", "RescaleSlope"),
    *("RescaleIntercept", "WindowCenter", "WindowWidth", "RescaleType", "VOILUTFunction", "PixelPresentation"),
    *("ModalityLUTSequence", "VOILUTSequence"),
}


def planted(vr: str, number: int) -> str | None:
    """A value for an element of this kind that can be found again."""
    return (
        f"PLANT{number:05}"
        if vr in TEXT
        else {
            "UI": f"1.2.826.77777.{number}",
            "DA": f"1957{1 + number % 12:02}{1 + number % 28:02}",
            "DT": f"1957{1 + number % 12:02}{1 + number % 28:02}120000",
            "TM": "235757",
            "IS": f"95700{number:05}",
            "DS": f"95700{number:05}",
            "AS": "957Y",
        }.get(vr)
    )


TRACES = (b"PLANT", b"1.2.826.77777", b"1957", b"235757", b"95700", b"957Y", b"Doe", b"Jane", b"MRN")


def plant(data: Dataset, sequences: bool = True) -> int:
    """Fill every standard element of text, in sequences and private ones too; how many."""
    n = 0
    for tag, (vr, _, _, _, keyword) in DicomDictionary.items():
        if tag >> 16 in (0, 2, 4, 0xFFFE) or tag > 0x7FE00000 or keyword in NEEDED:
            continue
        n += 1
        value = planted(vr, n)
        if value is not None:
            data.add_new(tag, vr, value)
        elif vr == "SQ" and sequences and keyword != "SequenceOfUltrasoundRegions" and n % 5 == 0:
            item = Dataset()
            item.add_new(0x00100010, "PN", f"PLANT{n:05}^Nested")
            item.add_new(0x00080100, "SH", f"PLANT{n:05}")
            data.add_new(tag, vr, [item])
    block = data.private_block(0x0009, "PLANT CREATOR", create=True)
    for offset, vr in enumerate(("LO", "UT", "PN", "UN")):
        block.add_new(offset, vr, b"PLANT-raw " if vr == "UN" else "PLANT-private")
    return n


@pytest.mark.slow
@pytest.mark.parametrize("n_frames", [1, 2])
def test_no_text_of_the_source_is_in_any_byte_of_the_products(tmp_path, n_frames, capfd, caplog):
    pixels = np.resize(speckle(3, 96, 128), (96, 128) if n_frames == 1 else (n_frames, 96, 128))
    path = write_dicom(tmp_path / "Doe" / "Jane.dcm", pixels)
    with pydicom.config.disable_value_validation():
        data = pydicom.dcmread(path)
        assert plant(data) > 2000
        data.save_as(path)
    assert sum(path.read_bytes().count(trace) > 0 for trace in TRACES) >= 6
    item = ScoringItem("Doe/Jane.dcm", str(path), patient="Doe Jane", study="MRN-study")
    with caplog.at_level(0):
        out, products = make(tmp_path, item, rows(ID, n_frames))
    assert [product.error_code for product in products] == [None] * (4 + 2 * n_frames)
    for product in products:
        raw = (out / product.path).read_bytes()
        if product.kind == "fhir":  # its identifiers come out of the key as well
            raw = re.sub(rb"urn:(oid|uuid):[0-9a-f.-]+", b"", raw)
            assert [trace for trace in TRACES if trace in raw] == []
        elif product.kind != "overlay":
            data = pydicom.dcmread(io.BytesIO(raw))
            for element in data.iterall():
                if element.VR == "UI":  # out of the key, so they may hold any digits by chance
                    assert element.value.startswith(("2.25.", "1.2.840.10008."))
                if element.VR in ("UI", "OB", "FD"):
                    element.value = None
            raw_text = str(data).encode()
            assert [trace for trace in TRACES if trace in raw_text] == []
        assert [trace for trace in (b"PLANT", b"1.2.826.77777", b"Doe", b"Jane") if trace in raw] == []
    heard = capfd.readouterr()
    told = heard.out + heard.err + caplog.text + repr(products) + " ".join(product.path for product in products)
    assert [trace for trace in TRACES if trace.decode() in told] == []


def all_objects(tmp_path) -> list[Path]:
    """Report, capture and presentation state of a still and of a loop."""
    paths = []
    for n_frames, name in ((1, "a" * 16), (3, "b" * 16)):
        item = cut_source(tmp_path / name, n_frames, SOPInstanceUID=f"1.2.826.0.1.3680043.8.498.3.{n_frames}")
        out, products = make(tmp_path, item, rows(name, n_frames), ["sr", "sc", "gsps"])
        paths += [out / product.path for product in products]
    return paths


@pytest.mark.slow
def test_storescu_sends_them_to_storescp(tmp_path):
    storescu, port, sent = tool("storescu"), a_free_port(), all_objects(tmp_path)
    with storescp(tmp_path / "received", port) as received:
        said(storescu, "127.0.0.1", port, *sent)
    got = {pydicom.dcmread(path).SOPInstanceUID: pydicom.dcmread(path) for path in received.iterdir()}
    assert len(got) == len(sent) == 6
    for path in sent:
        data = pydicom.dcmread(path)
        assert got[data.SOPInstanceUID] == data


@pytest.mark.slow
def test_orthanc_takes_them_in_and_shows_them(tmp_path):
    storescu, sent = tool("storescu"), all_objects(tmp_path)
    with orthanc_server(tmp_path / "orthanc", dicomweb=False) as orthanc:
        said(storescu, "-aec", "ORTHANC", "127.0.0.1", orthanc.dicom, *sent)
        shown = {}
        for identifier in orthanc.call("/instances"):
            tags = orthanc.call(f"/instances/{identifier}/simplified-tags")
            shown[tags["SOPInstanceUID"]] = (identifier, tags)
        assert len(shown) == len(sent)
        (patient,) = orthanc.call("/patients")  # one PatientID in all six
        assert orthanc.call(f"/patients/{patient}")["MainDicomTags"]["PatientID"] == pseudonyms().patient(
            KNOWN["PatientID"]
        )
        for path in sent:
            data = pydicom.dcmread(path)
            identifier, tags = shown[data.SOPInstanceUID]
            assert tags["Modality"] == data.Modality and tags["PatientIdentityRemoved"] == "YES"
            if data.Modality == "SR":
                assert tags["VerificationFlag"] == "UNVERIFIED"
            if data.Modality == "PR":
                assert tags["ContentLabel"] == "USVIT SCORES" and tags["GraphicAnnotationSequence"]
            if data.Modality != "OT":
                continue
            pixels = data.pixel_array if "NumberOfFrames" in data else data.pixel_array[None]
            for number, expected in enumerate(pixels):
                png = orthanc.read(f"/instances/{identifier}/frames/{number}/rendered", Accept="image/png")
                assert (np.asarray(Image.open(io.BytesIO(png)).convert("RGB")) == expected).all()


def test_a_full_disk_is_said(tmp_path, small_disk):
    from usvit.errors import UsvitError

    item = source(tmp_path, size=(600, 800))
    (small_disk / "filler").write_bytes(b"x" * 700_000)
    with pytest.raises(UsvitError, match=r"^No space left"):  # and not that the image is damaged
        write_products(order(tmp_path, small_disk, keep_ids=True), item, scored(item, [row(ID)]))
    assert not list((small_disk / "dicom").glob("*-sc*"))
