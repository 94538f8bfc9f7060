"""A MONAI bundle runs by MONAI's own command on real files, and says what usvit says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pydicom
import pytest
import torch
from PIL import Image
from pydicom.uid import ExplicitVRLittleEndian, UltrasoundMultiFrameImageStorage, generate_uid

from tests.exporting.conftest import tiny
from usvit.data.io.decoding import read_image
from usvit.errors import UsvitError
from usvit.exporting import to_monai, write_export
from usvit.exporting.bundle import Preprocess, Probabilities, Scorer, find_images, network, with_weights
from usvit.exporting.exportable import open_source
from usvit.exporting.verification import write_phantom_image
from usvit.models.trained_model import load_trained

monai_bundle = pytest.importorskip("monai.bundle")
pytest.importorskip("fire")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A phantom as PNG, a DICOM file of two frames, a folder with a JPEG, and what is no picture."""
    folder = tmp_path_factory.mktemp("pictures")
    grey = np.asarray(Image.open(write_phantom_image(folder)).convert("L"))
    write_dicom(folder / "scan.dcm", np.stack([grey, grey[:, ::-1]]))
    (folder / "deeper").mkdir()
    Image.fromarray(grey[:, :100]).save(folder / "deeper" / "view.jpg")
    Image.fromarray(grey).save(folder / ".hidden.png")
    (folder / "notes.txt").write_text("no picture")
    return folder


def write_dicom(path, frames):
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = UltrasoundMultiFrameImageStorage
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset.NumberOfFrames, dataset.Rows, dataset.Columns = frames.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation, dataset.PixelRepresentation = 1, "MONOCHROME2", 0
    dataset.BitsAllocated = dataset.BitsStored = 8
    dataset.HighBit = 7
    dataset.PixelData = frames.tobytes()
    dataset.save_as(path, enforce_file_format=True)


def usvit_says(fold, path, frame=0):
    trained = load_trained(fold)
    pixels = torch.tensor(trained.preprocessing.resized(read_image(path, frame)))[None]
    with torch.inference_mode():
        return trained.model(trained.preprocessing.normalised(pixels)).double().softmax(1)[0].numpy()


@pytest.mark.slow
def test_monais_own_command_scores_png_and_dicom_as_usvit_does(bundle, fold, pictures, tmp_path):
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "monai.bundle", "run", "--config_file", bundle / "configs" / "inference.json"),
            *("--bundle_root", bundle, "--input", pictures, "--output_dir", tmp_path / "eval", "--device", "cpu"),
        ],
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    scores = pd.read_csv(tmp_path / "eval" / "scores.csv").set_index(["name", "frame"])
    names = [("deeper/view.jpg", 0), ("phantom.png", 0), ("scan.dcm", 0), ("scan.dcm", 1)]
    assert sorted(scores.index) == names
    prob = scores[["prob_benign", "prob_malignant", "prob_normal"]]
    for name, frame in names:
        np.testing.assert_allclose(prob.loc[(name, frame)], usvit_says(fold, pictures / name, frame), atol=1e-6)
    assert prob.loc[("scan.dcm", 0)].equals(prob.loc[("phantom.png", 0)]), "one picture, two kinds of file"
    assert not prob.loc[("scan.dcm", 1)].equals(prob.loc[("scan.dcm", 0)])


@pytest.mark.slow
def test_metadata_has_what_the_specification_demands(bundle):
    metadata = json.loads((bundle / "configs" / "metadata.json").read_text())
    assert {
        *("version", "monai_version", "pytorch_version", "numpy_version", "required_packages_version"),
        *("task", "description", "authors", "copyright", "network_data_format", "schema", "intended_use"),
    } <= metadata.keys()
    demanded = {
        "type",
        "format",
        "num_channels",
        "spatial_shape",
        "dtype",
        "value_range",
        "is_patch_data",
        "channel_def",
    }
    (image,) = metadata["network_data_format"]["inputs"].values()
    (pred,) = metadata["network_data_format"]["outputs"].values()
    assert demanded <= image.keys() and demanded <= pred.keys()
    assert image["spatial_shape"] == [32, 32] and image["value_range"] == [-1, 1] and image["modality"] == "US"
    assert pred["channel_def"] == {"0": "benign", "1": "malignant", "2": "normal"}
    assert "usvit" in metadata["required_packages_version"]


def test_every_file_of_a_bundle_is_there_and_tells_no_path(bundle, fold):
    for name in ("LICENSE", "docs/README.md", "configs/inference.json", "models/model.pt", "models/model.safetensors"):
        assert (bundle / name).is_file(), name
    for path in bundle.rglob("*"):
        if path.is_file():
            assert str(fold.parent).encode() not in path.read_bytes(), path
    assert "Apache-2.0" in (bundle / "LICENSE").read_text()


@pytest.mark.slow
def test_monais_loader_and_its_check_of_shapes_take_the_bundle(bundle, fold):
    loaded = monai_bundle.load(bundle.name, bundle_dir=bundle.parent, workflow_type="inference", device="cpu")
    expected = load_trained(fold).model.state_dict()
    assert all(value.equal(expected[key]) for key, value in loaded.state_dict().items())
    monai_bundle.verify_net_in_out(
        "network_def",
        meta_file=str(bundle / "configs" / "metadata.json"),
        config_file=str(bundle / "configs" / "inference.json"),
        device="cpu",
    )


def verify_metadata(bundle, schema):
    """MONAI's own command, which takes a schema that is there already and downloads it otherwise."""
    file = bundle / "configs" / "metadata.json"
    command = [sys.executable, "-m", "monai.bundle", "verify_metadata", "--meta_file", file, "--filepath", schema]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_monais_own_command_verifies_the_metadata_against_the_specification(bundle, tmp_path):
    schema = Path(__file__).with_name("monai_meta_schema.json")
    answer = verify_metadata(bundle, schema)
    assert answer.returncode == 0 and "metadata is verified with no error" in answer.stderr + answer.stdout
    metadata = json.loads((bundle / "configs" / "metadata.json").read_text())
    metadata["network_data_format"]["outputs"]["pred"].pop("dtype")
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match="'dtype' is a required property"):
        monai_bundle.verify_metadata(meta_file=str(tmp_path / "metadata.json"), filepath=str(schema))


@pytest.mark.slow
def test_monais_own_command_verifies_the_metadata_against_monais_schema(bundle, tmp_path):
    """``USVIT_MONAI_SCHEMA`` names a copy of the schema, whose address is in metadata.json."""
    schema = os.environ.get("USVIT_MONAI_SCHEMA", "")
    if not Path(schema).is_file():
        pytest.skip("MONAI's schema is a download: set USVIT_MONAI_SCHEMA to a copy of it")
    answer = verify_metadata(bundle, schema)
    assert answer.returncode == 0, answer.stderr


def scorer(fold, source, out, **options):
    trained = load_trained(fold)
    return Scorer(
        source,
        Preprocess(**trained.metadata.preprocessing.content()),
        trained.model,
        lambda batch, model: model(batch),
        Probabilities(),
        trained.classes,
        "cpu",
        out,
        **options,
    )


@pytest.mark.slow
def test_a_bad_file_is_listed_and_costs_no_other(fold, pictures, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good.png").write_bytes((pictures / "phantom.png").read_bytes())
    (tmp_path / "in" / "bad.png").write_bytes((pictures / "phantom.png").read_bytes()[:200])
    (tmp_path / "in" / "bad.dcm").write_text("no DICOM")
    with pytest.raises(UsvitError, match=r"2 of 3 pictures could not be read") as error:
        scorer(fold, tmp_path / "in", tmp_path / "eval").run()
    assert error.value.exit_code == 3
    assert pd.read_csv(tmp_path / "eval" / "scores.csv").name.tolist() == ["good.png"]
    assert sorted(pd.read_csv(tmp_path / "eval" / "failures.csv").name) == ["bad.dcm", "bad.png"]
    scorer(fold, tmp_path / "in" / "good.png", tmp_path / "eval").run()
    assert not (tmp_path / "eval" / "failures.csv").exists(), "of an earlier run"


@pytest.mark.parametrize(("source", "said"), [(None, "Pass --input"), ("not/there", "no such file"), ("", "--input")])
def test_on_the_command_line_a_missing_picture_is_one_paragraph(source, said, fold, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        scorer(fold, source, tmp_path).main()
    assert stop.value.code == 2 and said in capsys.readouterr().err


def test_the_size_of_the_batch_changes_nothing(fold, pictures, tmp_path):
    one = scorer(fold, pictures, tmp_path, batch_size=1).run()
    all_ = scorer(fold, pictures, tmp_path, batch_size=16).run()
    pd.testing.assert_frame_equal(one, all_, atol=1e-6)


def test_every_frame_of_a_picture_is_found(tmp_path):
    pages = [Image.new("L", (40, 30), level) for level in (10, 200)]
    for name in ("a.gif", "b.tif"):
        pages[0].save(tmp_path / name, save_all=True, append_images=pages[1:])
    assert [(one["name"], one["frame"]) for one in find_images(tmp_path)] == [
        *(("a.gif", frame) for frame in range(2)),
        *(("b.tif", frame) for frame in range(2)),
    ]


def test_a_folder_without_pictures_is_named(tmp_path):
    with pytest.raises(UsvitError, match="holds no image"):
        find_images(tmp_path)


def test_weights_of_another_network_are_refused(bundle, tmp_path):
    with pytest.raises(UsvitError, match="belongs to another network"):
        with_weights(network("vit_ti16", 3, 32, {"depth": 1}), bundle / "models" / "model.safetensors", "cpu")
    with pytest.raises(UsvitError, match="--bundle_root"):
        with_weights(network("vit_ti16", 3, 32, {"depth": 1}), tmp_path / "model.safetensors", "cpu")


def test_a_class_that_monai_would_run_as_code_is_refused(tmp_path):
    source = tiny(vit={"depth": 1})
    source.metadata.classes[0] = "$__import__('os').abort()"
    with pytest.raises(UsvitError, match="interprets a text"):
        write_export(source, "monai", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_bundle_that_says_something_else_is_never_handed_out(fold, tmp_path, monkeypatch):
    right = to_monai.inference

    def wrong(metadata):
        changed = metadata.model_copy(deep=True)
        changed.preprocessing.mean = [0.1, 0.2, 0.3]
        return right(changed)

    monkeypatch.setattr(to_monai, "inference", wrong)
    with pytest.raises(UsvitError, match="export differs from the network"):
        write_export(open_source(str(fold)), "monai", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
