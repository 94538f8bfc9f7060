import doctest
import subprocess
import sys

import pytest
import torch

import usvit.models
from usvit.errors import UsvitError
from usvit.models import create_model, factory, list_models
from usvit.models.zoo import ZOO


def test_the_examples_of_the_docstrings_hold():
    assert doctest.testmod(factory).attempted >= 5
    assert doctest.testmod(factory).failed == 0
    assert doctest.testmod(usvit.models).failed == 0


def test_names_are_listed_by_pattern_and_family():
    assert list_models() == list(ZOO)
    assert set(list_models(family="cnn")) == {name for name, spec in ZOO.items() if spec.family == "cnn"}
    assert list_models("no_such_*") == []
    with pytest.raises(UsvitError, match="family 'vti'"):
        list_models(family="vti")


def test_parts_of_a_vit_are_exchanged_and_unknown_ones_refused():
    torch.manual_seed(0)
    model = create_model("vit_ti16", n_classes=3, image_size=32, depth=2, pool="avg")
    assert len(model.blocks) == 2 and model(torch.zeros(2, 3, 32, 32)).shape == (2, 3)
    with pytest.raises(UsvitError, match="dept"):
        create_model("vit_ti16", n_classes=3, dept=2)


@pytest.mark.slow
def test_the_facade_does_not_import_torch():
    code = "import sys, usvit.models; usvit.models.list_models(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert {"create_model", "list_models", "load_trained"} <= set(dir(usvit.models))
