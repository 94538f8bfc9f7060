"""A trained segmentation on new images: in Python, and as the source of masks of ``usvit score``."""

import json
import shutil

import highdicom as hd
import numpy as np
import pydicom
import pytest
from PIL import Image

import usvit
from tests.data.conftest import tissue_region, write_dicom
from tests.messages import record_messages
from tests.publishing.conftest import keys  # noqa: F401  (a fixture)
from tests.upstream.segmentation.disc_cases import SHAPE, run, scene
from usvit.data.io import pixel_sha256
from usvit.errors import UsvitError
from usvit.files import read_csv
from usvit.publishing import sign_model
from usvit.upstream.segmentation.segmenter import load_segmenter


@pytest.fixture
def trained(finished):
    return finished.path


def overlap(found, labels):
    return (found & (labels > 0)).sum() / (found | (labels > 0)).sum()


def test_each_fold_predicts_the_masks_that_the_run_wrote_for_its_test_images(trained, discs):
    masks = read_csv(trained / "masks.csv", text=("image_id", "file"))
    for fold in range(3):
        own = masks[masks.fold == fold].head(3)
        segmenter = load_segmenter(trained / f"fold-{fold}", device="cpu")
        found = segmenter.predict([str(discs / "images" / f"{name}.png") for name in own.image_id])
        for mask, file in zip(found, own.file, strict=True):
            np.testing.assert_array_equal(mask, np.asarray(Image.open(trained / file)) > 127)


def test_several_folds_are_averaged_and_find_new_lesions(trained):
    segmenter = usvit.load_segmenter(trained, device="cpu")
    assert segmenter.n_networks == 3 and segmenter.name == "timm:test_resnet+linear"
    pixels, labels = scene(1001)
    path_free = segmenter.predict(pixels)
    assert path_free[0].shape == SHAPE and overlap(path_free[0], labels) > 0.5
    np.testing.assert_array_equal(segmenter.predict([Image.fromarray(pixels)])[0], path_free[0])
    assert segmenter.predict(np.full(SHAPE, 60, np.uint8))[0].sum() == 0


def test_images_of_its_training_are_named_in_a_warning(trained):
    segmenter = load_segmenter(trained, device="cpu")
    said = record_messages()
    segmenter.predict([scene(1)[0], scene(1001)[0]])
    assert any("1 of 2 images were used to train the segmenter" in line for line in said)


def test_boxes_of_mask_rcnn_become_one_mask_for_each_image(discs, tmp_path):
    found = run(discs, tmp_path / "run", segment={"head": "mask_rcnn"}, train={"steps": 2})
    masks = read_csv(found.path / "masks.csv", text=("image_id", "file"))
    one = next(row for row in masks.itertuples() if row.file.startswith("fold-0"))
    (mask,) = load_segmenter(found.path / "fold-0", device="cpu").predict(scene(int(one.image_id))[0])
    assert np.array_equal(mask, np.asarray(Image.open(found.path / one.file)) > 0)


def test_a_unet_is_loaded_with_the_record_of_what_it_has_seen(usvit, discs, tiny_run, tmp_path):
    weights = {"name": "timm:test_resnet", "weights": "scratch"}
    found = run(discs, tmp_path / "run", segment={"head": "unet", "peer": "linear"}, train={"steps": 2}, model=weights)
    segmenter = load_segmenter(found.path, device="cpu")
    assert (segmenter.name, segmenter.n_networks) == ("unet", 3)
    folds = read_csv(found.path / "folds.csv", text=("image_id",))
    for fold in range(3):
        own = load_segmenter(found.path / f"fold-{fold}", device="cpu")
        seen = {name for name in folds.image_id.unique() if pixel_sha256(scene(int(name))[0]) in own.seen}
        assert seen == set(folds[(folds.fold == fold) & (folds.part != "test")].image_id)
    masks = read_csv(found.path / "masks.csv", text=("image_id", "file"))
    one = next(row for row in masks.itertuples() if row.file.startswith("fold-0"))
    (mask,) = load_segmenter(found.path / "fold-0", device="cpu").predict(scene(int(one.image_id))[0])
    same = mask == (np.asarray(Image.open(found.path / one.file)) > 0)
    assert same.mean() > 0.95  # hardly trained: some pixels are at 0.5, and the run may have been in bfloat16
    metadata = json.loads((found.path / "fold-0" / "model.json").read_text())
    assert (metadata["architecture"], metadata["upstream"]["source"]) == ("unet", "scratch")
    (tmp_path / "in").mkdir()
    for number in (1, 1001):
        Image.fromarray(scene(number)[0]).save(tmp_path / "in" / f"{number}.png")
    answer = score(usvit, tiny_run, tmp_path / "in", tmp_path, "--seg-from", found.path)
    assert answer.code == 0, answer.err
    scores = read_csv(tmp_path / "scores" / "scores.csv", text=("path",)).set_index("path")
    assert scores.seen.to_dict() == {"1.png": True, "1001.png": False} and "lesion_area" in scores
    answer = usvit("cv", "--dataset", "phantom", "--model", "timm:test_resnet", "--weights", found.path)
    assert answer.code == 2 and "unet" in answer.err
    with (found.path / "fold-1" / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"abcd")
    with pytest.raises(UsvitError, match=r"model\.safetensors"):
        load_segmenter(found.path / "fold-1")


def test_an_unsigned_segmenter_is_refused_where_signatures_are_required(usvit, trained, tiny_run, keys, tmp_path):  # noqa: F811
    private, public = keys
    source = tmp_path / "in"
    write_dicom(source / "a.dcm", scene(1001)[0][..., 0])
    for model, name in ((tiny_run, "model"), (trained, "segmenter")):
        shutil.copytree(model, tmp_path / name)
    sign_model(tmp_path / "model", private)
    more = ("--seg-from", tmp_path / "segmenter", "--require-signature", public)
    answer = score(usvit, tmp_path / "model", source, tmp_path, *more)
    assert answer.code == 2 and "segmenter is not signed" in answer.err
    sign_model(tmp_path / "segmenter", private)
    assert score(usvit, tmp_path / "model", source, tmp_path, *more).code == 0
    head = tmp_path / "segmenter" / "fold-0" / "segmenter.safetensors"
    head.write_bytes(head.read_bytes()[:-1] + b"x")
    assert "segmenter.safetensors is not the file" in score(usvit, tmp_path / "model", source, tmp_path, *more).err


def score(usvit, run, source, tmp_path, *more):
    return usvit(
        *("score", "--model", run, "--input", source, "--out", tmp_path / "scores", "--key", tmp_path / "key"),
        *("--workers", 1, "--keep-ids", "--device", "cpu", *more),
    )


def test_usvit_score_takes_masks_outlines_and_areas_from_the_segmenter(usvit, trained, tiny_run, tmp_path):
    """A file with spacing 0.1 mm and a tissue region, one without spacing, and one without a lesion."""
    source, labels = tmp_path / "in", {}
    for number, name in enumerate(("spaced", "plain", "empty")):
        pixels, labels[name] = scene(1001 + number)
        if name == "empty":
            pixels, labels[name] = np.full_like(pixels, 60), np.zeros(SHAPE, np.uint8)
        more = {"SequenceOfUltrasoundRegions": [tissue_region(0, 0, 64, 40)]} if number == 0 else {}
        write_dicom(source / f"{name}.dcm", pixels[..., 0], **more)
    answer = score(usvit, tiny_run, source, tmp_path, "--seg", "--gsps", "--seg-from", trained)
    assert answer.code == 0, answer.err
    scores = read_csv(tmp_path / "scores" / "scores.csv", text=("path",)).set_index("path")
    by_uid = {pydicom.dcmread(path).SOPInstanceUID: path.stem for path in source.iterdir()}
    for path in (tmp_path / "scores" / "dicom").glob("*-seg-*.dcm"):
        data = hd.seg.segread(path)
        name = by_uid[data.SourceImageSequence[0].ReferencedSOPInstanceUID]
        mask = data.pixel_array.reshape(SHAPE).astype(bool)
        row = scores.loc[f"{name}.dcm"]
        assert row.lesion_unit == ("mm2" if name == "spaced" else "px")
        assert row.lesion_area == pytest.approx(mask.sum() * (0.01 if name == "spaced" else 1))
        if name == "plain":
            assert overlap(mask, labels[name]) > 0.5
        if name == "empty":
            assert row.lesion_area == 0
        (segment,) = data.SegmentSequence
        assert "test_resnet+linear" in str(segment.SegmentationAlgorithmIdentificationSequence[0].AlgorithmName)
    summary = json.loads((tmp_path / "scores" / "summary.json").read_text())
    assert summary["model"]["segmenter"]["networks"] == 3
    (state,) = [
        pydicom.dcmread(path)
        for path in (tmp_path / "scores" / "dicom").glob("*-gsps.dcm")
        if by_uid[pydicom.dcmread(path).ReferencedSeriesSequence[0].ReferencedImageSequence[0].ReferencedSOPInstanceUID]
        == "plain"
    ]
    shapes = [g.GraphicType for one in state.GraphicAnnotationSequence for g in one.get("GraphicObjectSequence", [])]
    assert "POLYLINE" in shapes


def test_images_that_the_segmenter_has_seen_count_as_seen(usvit, trained, tiny_run, tmp_path):
    for number in (1, 1001):
        (tmp_path / "in").mkdir(exist_ok=True)
        Image.fromarray(scene(number)[0]).save(tmp_path / "in" / f"{number}.png")
    answer = score(usvit, tiny_run, tmp_path / "in", tmp_path, "--seg-from", trained)
    assert answer.code == 0, answer.err
    scores = read_csv(tmp_path / "scores" / "scores.csv", text=("path",)).set_index("path")
    assert scores.seen.to_dict() == {"1.png": True, "1001.png": False}
    assert "Warning: 1 of these images" in answer.out
    assert {"lesion_area", "lesion_unit"} <= {*scores} and not (tmp_path / "scores" / "dicom").exists()


def test_folders_that_are_no_segmentation_of_lesions_are_refused(usvit, trained, tiny_run, tmp_path):
    def refused(folder):
        with pytest.raises(UsvitError) as error:
            load_segmenter(folder)
        return str(error.value)

    assert "no run.json. Name the folder of a run of usvit transfer --how segment" in refused(tmp_path)
    answer = score(usvit, tiny_run, tmp_path, tmp_path, "--seg", "--seg-from", tiny_run)
    assert answer.code == 2 and "is a run of usvit cv, but no segmentation" in " ".join(answer.err.split())
    assert not (tmp_path / "scores").exists()
    copy = shutil.copytree(trained, tmp_path / "copy")
    shutil.copy(trained / "fold-0" / "model.safetensors", copy / "fold-1" / "segmenter.safetensors")
    assert "segmenter.safetensors" in refused(copy)
