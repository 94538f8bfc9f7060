"""A model to pass on, and a pair of keys."""

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.exporting.conftest import fold, metrics_of_the_fold  # noqa: F401  (fixtures)
from tests.models.conftest import _one_thread  # noqa: F401  (for every test here)


def write_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the files of a new private and public key."""
    key, form = Ed25519PrivateKey.generate(), serialization
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    for suffix, content in (("pem", private), ("pub", public)):
        (folder / f"{name}.{suffix}").write_bytes(content)
    return folder / f"{name}.pem", folder / f"{name}.pub"


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    return write_keys(tmp_path_factory.mktemp("keys"), "own")


@pytest.fixture
def model(fold, tmp_path):  # noqa: F811
    """The folder of a fold with metrics, a page and a file that is no part of the format."""
    folder = tmp_path / "model"
    shutil.copytree(fold, folder)
    (folder / "metrics.json").write_text(json.dumps(metrics_of_the_fold()))
    (folder / "report.html").write_text("page")
    (folder / "model.pkl").write_bytes(b"pickle")
    (folder / "predictions.csv").write_text("image_id,label\n")
    return folder
