"""Fine-tuning near the initial weights by the real command."""

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import TINY

LAST = ("--set", "train.early_stopping.keep=last", "--set", "split.folds=2", "--set", "train.steps=3")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_report")]


@pytest.fixture
def trained(usvit, small_phantom, tmp_path):
    """A function that continues a run of one step, and returns the first fold's tensors."""
    first = tmp_path / "first"
    assert usvit("cv", "--data-root", small_phantom, "--out", first, *TINY, *LAST, "--set", "train.steps=1").code == 0

    def run(name, *settings):
        options = [*TINY, *LAST, "--weights", first, "--folds", first / "folds.csv"]
        for setting in settings:
            options += ["--set", setting]
        answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / name, *options)
        assert answer.code == 0, answer.err
        return load_file(tmp_path / name / "fold-0" / "model.safetensors")

    run.folder = first / "fold-0"
    return run


def test_the_kept_network_has_its_share_of_the_initial_weights_and_statistics_of_its_own(trained):
    initial = load_file(trained.folder / "model.safetensors")
    plain = trained("plain", "train.batch_norm=recomputed")
    kept = trained("kept", "train.batch_norm=recomputed", "train.initial_share=0.25")
    names = [name for name in kept if name.endswith((".weight", ".bias")) and not name.startswith("fc.")]
    for name in names:
        torch.testing.assert_close(kept[name], 0.75 * plain[name] + 0.25 * initial[name], rtol=1e-5, atol=1e-6)
    assert torch.equal(kept["fc.weight"], plain["fc.weight"])
    assert not torch.equal(kept["bn1.running_mean"], plain["bn1.running_mean"])


def test_the_first_head_is_that_of_a_logistic_regression_on_frozen_features(trained):
    """With a learning rate of almost zero, the whole network stays what its head was fitted to."""
    best = "train.early_stopping.keep=best"
    probe = trained("probe", "model.tune=head", "optim.name=logistic", "input.augment=none", best)
    kept = trained("kept", "train.head_first=true", "train.batch_norm=frozen", "optim.lr=1e-12", "input.augment=us")
    assert probe["fc.weight"].abs().max() > 0.01
    torch.testing.assert_close(kept, probe, rtol=1e-5, atol=1e-6)
