from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.scoring.dicom_out.product_cases import SCORER, row
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.errors import UsvitError
from usvit.explaining.attention import rollout_maps
from usvit.models.build import build_model
from usvit.models.trained_model import TrainedModel
from usvit.models.weights import Weights
from usvit.models.zoo import find_model
from usvit.scoring.dicom_out.findings import finding_of
from usvit.scoring.dicom_out.network_maps import saliency_of, scaled
from usvit.scoring.dicom_out.overlay import (
    COLOURED,
    OUTLINE,
    UNCOLOURED,
    caption_lines,
    onto_view,
    render,
    stacked,
    write_png,
)

RNG = np.random.default_rng(0)
FINDING = finding_of(row("a"), SCORER)


def view(height=120, width=500):
    return RNG.integers(0, 255, (height, width, 3), dtype=np.uint8)


def trained(name, size):
    spec = find_model(name)
    torch.manual_seed(0)
    model = build_model(spec, Weights("scratch"), n_classes=3, image_size=size).eval()
    metadata = SimpleNamespace(classes=["benign", "malignant", "normal"], positive_class="malignant")
    return TrainedModel(model, spec, metadata, Preprocessing(size, "pad", (0.5,) * 3, (0.25,) * 3))


@pytest.mark.parametrize("resize", ["pad", "squash"])
@pytest.mark.parametrize("shape", [(60, 200), (200, 60), (100, 100), (301, 407)])
def test_what_is_marked_in_the_square_is_marked_at_the_same_place_of_the_view(shape, resize):
    height, width = shape
    marked = np.zeros(shape, dtype=bool)
    marked[height // 5 : height // 2, width // 2 : width * 4 // 5] = True
    square = Preprocessing(96, resize, (0.0,) * 3, (1.0,) * 3).resized_mask(marked)
    back = onto_view(square.astype(np.float64), height, width, resize) > 0.5
    assert (back & marked).sum() / (back | marked).sum() > 0.85


def test_the_view_is_shown_unchanged_where_saliency_is_zero_and_without_it():
    picture = view()
    saliency = np.zeros((32, 32))
    saliency[:, 16:] = 1
    drawn = render(picture, FINDING, replace(SCORER, resize="squash"), saliency=saliency)
    assert (drawn[:120, :240] == picture[:, :240]).all()
    assert (drawn[:120, 260:] != picture[:, 260:]).any(axis=2).mean() > 0.9
    assert (drawn[:120] == OUTLINE).all(axis=2).any()
    assert (render(picture, FINDING, SCORER)[:120] == picture).all()


def test_higher_saliency_is_brighter():
    grey = np.full((100, 500, 3), 60, dtype=np.uint8)
    ramp = np.tile(np.linspace(0, 1, 500), (500, 1))
    drawn = render(grey, FINDING, replace(SCORER, resize="squash"), saliency=ramp)[50].astype(float)
    inside = drawn[~(drawn == OUTLINE).all(axis=1)] @ (0.2126, 0.7152, 0.0722)
    assert np.corrcoef(inside, np.arange(len(inside)))[0, 1] > 0.9


def test_small_views_are_enlarged_by_a_whole_factor():
    picture = view(40, 100)
    drawn = render(picture, FINDING, SCORER)
    assert drawn.shape[1] == 500
    assert (drawn[:200:5, ::5] == picture).all()


def test_the_caption_says_what_was_found_and_grows_with_it():
    lines = " ".join(caption_lines(FINDING, SCORER, 9, COLOURED))
    for part in ("malignant: calibrated probability 0.750", "decision: malignant", "threshold 0.400", "frame 1 of 9"):
        assert part in lines
    unusual = finding_of(row("a", unusual=True, decision=""), SCORER)
    lines = " ".join(caption_lines(unusual, SCORER, 1, ""))
    assert "no decision (unusual image)" in lines and "UNUSUAL" in lines and "frame" not in lines
    assert len(render(view(), unusual, SCORER)) > len(render(view(), FINDING, SCORER))
    no_threshold = finding_of(row("a", decision="", threshold=None), SCORER)
    assert "no decision" in caption_lines(no_threshold, SCORER, 1, "")


def test_frames_of_different_sizes_are_stacked_over_black():
    small, large = view(10, 20), view(30, 15)
    frames = stacked([small, large])
    assert frames.shape == (2, 30, 20, 3)
    assert (frames[0, :10] == small).all() and not frames[0, 10:].any()
    assert (frames[1, :, :15] == large).all() and not frames[1, :, 15:].any()


def test_a_png_holds_pixels_alone(tmp_path):
    picture = view()
    write_png(tmp_path / "a.png", picture)
    with Image.open(tmp_path / "a.png") as read:
        assert (np.asarray(read) == picture).all() and not read.info
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_flat_map_is_nothing_and_the_caption_says_so():
    lines = caption_lines(FINDING, SCORER, 1, UNCOLOURED)
    assert UNCOLOURED in lines and COLOURED not in lines
    picture = np.full((120, 500, 3), 60, dtype=np.uint8)
    flat, none = (render(picture, FINDING, SCORER, saliency=one) for one in (np.full((8, 8), 0.4), None))
    assert (flat[:120] == picture).all() and len(flat) > len(none)
    assert not scaled(np.full((4, 4), 0.3)).any()
    assert scaled(np.array([[2.0, 4.0]])).tolist() == [[0.0, 1.0]]


def test_saliency_of_a_transformer_is_its_rollout():
    torch.manual_seed(0)  # weights and image are the same, whichever tests ran before
    network = trained("vit_ti16", 64)
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    found = saliency_of(network, pixels)
    assert found.shape == (64, 64) and found.min() == 0 and found.max() == 1
    tensor = network.preprocessing.normalised(torch.from_numpy(pixels)[None])
    maps = rollout_maps(network.model, tensor, "vit")[0].numpy()
    patches = found.reshape(4, 16, 4, 16).mean(axis=(1, 3))
    assert patches.argmax() == maps.argmax() and patches.argmin() == maps.argmin()
    assert (found == saliency_of(network, pixels)).all()


def test_saliency_of_a_convolutional_network_is_grad_cam():
    pytest.importorskip("monai")
    found = saliency_of(trained("timm:test_resnet", 64), view(64, 64))
    assert found.shape == (64, 64) and found.min() >= 0 and found.max() in (0, 1)


def test_without_monai_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("usvit.explaining.saliency.find_spec", lambda name: None)
    with pytest.raises(UsvitError, match=r"usvit\[explain\]"):
        saliency_of(trained("timm:test_resnet", 64), view(64, 64))
