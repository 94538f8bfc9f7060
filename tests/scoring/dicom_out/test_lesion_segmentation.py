from dataclasses import replace

import highdicom as hd
import numpy as np
import pydicom
import pytest
from PIL import Image

from tests.data.conftest import write_dicom
from tests.scoring.dicom_out.product_cases import (
    KNOWN,
    ODD_HEADERS,
    SETTINGS,
    cut_source,
    iod_errors,
    make,
    odd_source,
    order,
    rows,
    scored,
    source,
)
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.files import read_csv
from usvit.scoring.dicom_out.network_maps import NetworkMaps
from usvit.scoring.dicom_out.products import write_products

ID = "a" * 16
SQUARE = np.zeros((32, 32), np.float32)
SQUARE[8:16, 4:20] = 1


def written(tmp_path, item, n_frames=1, **more):
    folder, products = make(tmp_path, item, rows(ID, n_frames), ["seg"], lesion=SQUARE, **more)
    assert {(one.kind, one.error_code) for one in products} == {("seg", None)}
    return [folder / one.path for one in products]


def test_the_mask_lies_where_the_networks_saw_it_in_the_whole_frame(tmp_path):
    """The tissue is 80 x 64 px at (24, 16); padded to a square of 32 px, it is 32 x 26 px with three rows above it."""
    (path,) = written(tmp_path, cut_source(tmp_path), keep_ids=True)
    data = hd.seg.segread(path)
    mask = data.pixel_array.astype(bool)
    assert mask.shape == (96, 128)
    expected = np.zeros((96, 128), bool)
    top, left, scale = 16, 24, 80 / 32
    expected[
        round(top + (8 - 3) * 64 / 26) : round(top + (16 - 3) * 64 / 26),
        round(left + 4 * scale) : round(left + 20 * scale),
    ] = True
    assert (mask ^ expected).sum() <= 0.1 * expected.sum()  # bilinear edges
    assert (data.PatientID, data.StudyInstanceUID) == (KNOWN["PatientID"], KNOWN["StudyInstanceUID"])
    (found,) = data.get_source_image_uids()
    assert found[2] == KNOWN["SOPInstanceUID"]
    (segment,) = data.SegmentSequence
    assert (segment.SegmentLabel, segment.SegmentAlgorithmType) == ("Lesion", "AUTOMATIC")
    assert "RESEARCH USE ONLY" in data.SeriesDescription


def test_each_drawn_frame_of_a_loop_has_its_own_object(tmp_path):
    paths = written(tmp_path, cut_source(tmp_path, 6), 6, most=2)
    assert [path.name for path in paths] == [f"{ID}-seg-4.dcm", f"{ID}-seg-5.dcm"]
    for number, path in enumerate(paths, 5):
        (frame,) = pydicom.dcmread(path).PerFrameFunctionalGroupsSequence
        (reference,) = frame.DerivationImageSequence[0].SourceImageSequence
        assert reference.ReferencedFrameNumber == number
        assert reference.ReferencedSOPClassUID == "1.2.840.10008.5.1.4.1.1.3.1"
    assert len({pydicom.dcmread(path).SOPInstanceUID for path in paths}) == 2


def test_without_a_lesion_the_mask_is_empty(tmp_path):
    folder, (product,) = make(tmp_path, source(tmp_path), rows(ID, 1), ["seg"], lesion=0 * SQUARE)
    assert not hd.seg.segread(folder / product.path).pixel_array.any()
    assert iod_errors(folder / product.path) == []


@pytest.mark.parametrize("name", list(ODD_HEADERS))
def test_objects_of_odd_sources_are_valid(tmp_path, name):
    for n_frames in (1, 3) if name == "plain" else (1,):
        for path in written(tmp_path, odd_source(tmp_path, name, n_frames), n_frames, out=str(n_frames)):
            assert iod_errors(path) == []


def test_the_same_work_gives_the_same_bytes_and_a_revision_another_object(tmp_path):
    item = cut_source(tmp_path)
    (first,), (again,) = (written(tmp_path, item, out=out) for out in ("a", "b"))
    assert first.read_bytes() == again.read_bytes()
    later = replace(order(tmp_path, tmp_path / "c", ["seg"]), revision=1)
    (product,) = write_products(later, item, scored(item, rows(ID, 1)), NetworkMaps({}, {0: SQUARE}))
    uids = [pydicom.dcmread(path).SOPInstanceUID for path in (first, tmp_path / "c" / product.path)]
    assert len(set(uids)) == 2


def test_without_keep_ids_nothing_names_the_patient(tmp_path):
    (path,) = written(tmp_path, cut_source(tmp_path))
    content = path.read_bytes()
    for word in ("Doe", "MRN-4711", "Mercy", "House", KNOWN["StudyInstanceUID"], KNOWN["SOPInstanceUID"], "20190807"):
        assert word.encode() not in content


def test_a_picture_and_a_source_without_a_reference_get_no_mask(tmp_path):
    item = source(tmp_path)
    assert make(tmp_path, item, rows(ID, 1, kind="picture"), ["seg"])[1] == []
    data = pydicom.dcmread(item.location)
    data.SOPClassUID = "1.2.3"
    data.save_as(item.location)
    _, (product,) = make(tmp_path, item, rows(ID, 1), ["seg"])
    assert product.error_code == "no_reference"


def test_a_frame_without_a_map_has_no_mask():
    assert NetworkMaps().lesion_of_frame(0, (96, 128), None, SETTINGS) is None


@pytest.mark.slow
def test_usvit_score_writes_the_lesions_that_the_model_finds(usvit, tmp_path):
    root = write_phantom(PhantomSpec(n=40, seed=5, size=192), tmp_path / "phantom", workers=1)
    run = tmp_path / "run"
    settings = ("--set", "model.image_size=192", "--set", "train.epochs=1", "--set", "split.folds=2")
    options = ("--device", "cpu", "--precision", "fp32", *settings)
    trained = usvit("train", "--data-root", root, "--recipe", "usvit_small", "--out", run, *options)
    assert trained.code == 0, trained.err
    truth = {path.stem.removesuffix("_mask"): path for path in root.rglob("*_mask.png")}
    chosen = sorted(truth)[:3]
    for number, name in enumerate(chosen):
        image = np.asarray(Image.open(truth[name].with_name(f"{name}.png")).convert("L"))
        write_dicom(tmp_path / "in" / f"{number}.dcm", image)
    score = ("--model", run, "--input", tmp_path / "in", "--key", tmp_path / "key", "--keep-ids", "--workers", 1)
    answer = usvit("score", *score, "--out", tmp_path / "scores", "--seg")
    assert answer.code == 0, answer.err
    products = read_csv(tmp_path / "scores" / "products.csv")
    assert set(products.kind) == {"seg"} and len(products) == 3
    written = [hd.seg.segread(path) for path in (tmp_path / "scores" / "dicom").iterdir()]
    masks = {one.SourceImageSequence[0].ReferencedSOPInstanceUID: one.pixel_array.astype(bool) for one in written}
    areas = read_csv(tmp_path / "scores" / "scores.csv", text=("sop_instance_uid",)).set_index("sop_instance_uid")
    overlaps = []
    for number, name in enumerate(chosen):
        uid = pydicom.dcmread(tmp_path / "in" / f"{number}.dcm").SOPInstanceUID
        found = masks[uid]
        assert areas.loc[uid, ["lesion_area", "lesion_unit"]].tolist() == [found.sum(), "px"]
        true = np.asarray(Image.open(truth[name]).convert("L")) > 127
        overlaps.append((found & true).sum() / (found | true).sum())
    assert np.mean(overlaps) > 0.5  # it has learnt from other phantoms


def test_a_model_without_a_mask_is_refused_before_anything_is_written(usvit, tiny_run, tmp_path):
    answer = usvit("score", "--model", tiny_run, "--input", tmp_path, "--out", tmp_path / "scores", "--seg")
    assert answer.code == 2
    assert "timm:test_resnet predicts none" in " ".join(answer.err.split())
    assert not (tmp_path / "scores").exists()
