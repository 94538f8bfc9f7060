"""Two small phantom scanners and the settings of networks that train in a second."""

import pytest

from usvit.data.phantom import PhantomSpec, write_phantom

NEAR, FAR = "frequency_mhz=11,gain_db=0", "frequency_mhz=5,gain_db=-12,looks=1"
TINY = {
    "model": "timm:test_resnet",
    "recipe": "demo",
    "sizes": [10, 500],
    "draws": 6,
    "model__image_size": 32,
    "split__folds": 3,
    "train__steps": 3,
    "device": "cpu",
    "precision": "fp32",
}
"""Arguments of a measurement of seconds."""


@pytest.fixture(scope="session")
def scanners(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scanners")
    for seed, (name, scanner) in enumerate((("near", NEAR), ("far", FAR)), start=1):
        write_phantom(PhantomSpec(n=96, seed=seed, size=64, scanner=scanner), folder / name, workers=1)
    return folder
