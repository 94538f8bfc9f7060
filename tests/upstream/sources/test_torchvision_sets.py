"""Data sets that torchvision reads, in small real files of its layouts."""

from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from usvit.errors import UsvitError
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.sources.open import open_source
from usvit.upstream.sources.torchvision_sets import SPLITS


def opened(kind, root, split="train"):
    return open_source(SourceConfig(name=f"torchvision:{kind}"), {"": Path(root)}, split=split, seed=0)


@pytest.fixture
def svhn(tmp_path, monkeypatch):
    """Three digits of 32 x 32 in MATLAB's format; SVHN writes 0 as 10."""
    from torchvision.datasets import SVHN

    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 3), dtype=np.uint8)
    scipy.io.savemat(tmp_path / "train_32x32.mat", {"X": pixels, "y": np.array([[10], [3], [1]])})
    monkeypatch.setattr(SVHN, "_check_integrity", lambda self: True)
    return tmp_path, pixels


def test_arrays_are_read_with_their_classes(svhn):
    root, pixels = svhn
    source = opened("SVHN", root)
    assert source.targets.tolist() == [0, 3, 1] and source.classes == ("0", "1", "2", "3")
    assert np.array_equal(np.asarray(source.image(2)), pixels[..., 2])


def test_folders_are_read_with_their_classes(tmp_path):
    for name in ("forest", "river"):
        folder = tmp_path / "eurosat" / "2750" / name
        folder.mkdir(parents=True)
        Image.new("RGB", (64, 64), (10, 200, 30)).save(folder / f"{name}_1.jpg")
    source = opened("EuroSAT", tmp_path, "all")
    assert source.classes == ("forest", "river") and source.targets.tolist() == [0, 1]
    assert source.image(0).mode == "RGB" and len(source) == 2


@pytest.mark.parametrize(
    "kind, split, words",
    [
        ("SVHNN", "train", "SVHN"),
        ("CIFAR10", "train", "These are read"),  # pickles: it has a reader of its own
        ("SVHN", "val", "train, test, extra"),
        ("SVHN", "train", "usvit does not download it"),
        ("DTD", "train", "usvit does not download it"),
        ("MNIST", "train", "usvit does not download it"),
    ],
)
def test_what_is_not_there_is_told_in_one_paragraph(kind, split, words, tmp_path):
    with pytest.raises(UsvitError, match=words):
        opened(kind, tmp_path, split)


def test_every_class_and_every_split_is_torchvisions(tmp_path):
    """Each constructor takes these arguments; with no files it refuses, and it does not touch the network."""
    for kind, splits in SPLITS.items():
        for split in splits:
            with pytest.raises(UsvitError, match="usvit does not download it"):
                opened(kind, tmp_path, split)
