"""A run whose text tower was trained on phantoms."""

import pytest

from usvit.config import build
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.transfer_learning.experiment import Transfer

SMALL = {"width": 16, "heads": 2, "depth": 1, "steps": 4, "batch_size": 30, "lr": 0.01, "vocabulary": 300}


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory):
    return write_phantom(PhantomSpec(n=60, size=64), tmp_path_factory.mktemp("phantoms") / "phantom")


def tuned(phantoms, out, **text):
    """Train a text tower on the phantoms, and return the folder of the run."""
    settings = {
        "how": "text",
        "source": {"name": "data", "val_share": 0.1},
        "data": {"dataset": "phantom"},
        "text": SMALL | {"pairs": str(phantoms / "texts.csv")} | text,
        "model": {"name": "timm:test_resnet", "weights": "scratch", "image_size": 64},
        "device": "cpu",
        "precision": "fp32",
    }
    config = build(TransferConfig, settings)
    return Transfer(config, out=out, command="usvit transfer", roots={"phantom": phantoms}).run().path


@pytest.fixture(scope="session")
def trained(phantoms, tmp_path_factory):
    """The folder of a run of ``usvit transfer --how text`` with a decoder."""
    return tuned(phantoms, tmp_path_factory.mktemp("run") / "run", decoder=True, decoder_steps=3)
