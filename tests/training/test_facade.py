"""``usvit.training`` offers its public names, and imports PyTorch only when one of them is used."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_facade_is_lazy_and_complete():
    code = (
        "import sys, usvit.training as training; assert 'torch' not in sys.modules; "
        "from usvit.training import trainer; assert training.Trainer is trainer.Trainer; "
        "assert all(getattr(training, name) for name in training.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
