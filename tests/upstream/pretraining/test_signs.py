"""Pre-training on class, signs and masks of phantoms."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from usvit.config import build
from usvit.data.phantom import SIGN_LAWS
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.models import create_model, find_model
from usvit.progress import NO_PROGRESS
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.loading.sign_batches import SignBatches, phantom_store
from usvit.upstream.pretraining.signs import make, sign_loss
from usvit.upstream.pretraining.task import TaskContext
from usvit.upstream.pretraining_run.batches import views_on_device
from usvit.upstream.sources.generated import PhantomSource

SOURCE = PhantomSource(size=400, image_size=256, seed=3)


def test_signs_are_standardised_by_the_laws_they_were_drawn_from():
    """Benign lesions have mean 0 and spread 1; malignant ones are shifted by the law's own shift."""
    signs = np.array([SOURCE.signs(index) for index in range(len(SOURCE))])
    names = np.array(SOURCE.classes)[SOURCE.targets]
    assert np.isnan(signs[names == "normal"]).all()
    benign, malignant = signs[names == "benign"], signs[names == "malignant"]
    for column, (name, law) in enumerate(SIGN_LAWS.items()):
        if name in ("orientation", "margin", "posterior", "echo"):  # hardly clipped by their limits
            assert np.median(benign[:, column]) == pytest.approx(0, abs=0.35), name
            assert np.median(malignant[:, column]) - np.median(benign[:, column]) == pytest.approx(law.shift, abs=0.45)


def test_an_orientation_is_the_height_over_the_width_of_its_mask():
    index = int(np.flatnonzero(SOURCE.targets == 1)[0])
    _, mask = SOURCE.with_mask(index)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    ratio = (np.ptp(rows) + 1) / (np.ptp(columns) + 1)
    law = SIGN_LAWS["orientation"]
    drawn = math.exp(SOURCE.signs(index)[list(SIGN_LAWS).index("orientation")] * law.spread + law.benign)
    assert ratio == pytest.approx(drawn, rel=0.35)


def test_batches_hold_each_phantom_with_its_own_class_signs_and_mask():
    source = PhantomSource(size=6, image_size=256, seed=5)
    store = phantom_store(source, Preprocessing(64, "pad", (0.0,) * 3, (1.0,) * 3), 0.6, 0, NO_PROGRESS)
    batches = SignBatches(source, store, batch_size=6, augment=None, seed=0)
    (batch,) = batches.iterate(0, 1)
    for image, target, signs, lesion in zip(
        *(batch[k] for k in ("images", "targets", "signs", "lesions")), strict=True
    ):
        at = next(i for i in range(6) if (store.pixels[i] == image.numpy()).all())
        assert target == source.targets[at]
        assert np.allclose(signs.numpy(), source.signs(at), equal_nan=True, atol=1e-6)
        assert bool(lesion.any()) == (source.classes[target] != "normal")
    dark = (store.pixels[:, 0] == 0).all(axis=(1, 2))
    assert dark.any(), "a phantom that was cut is wider than deep, so that it has black borders above and below"


def test_the_loss_of_the_signs_counts_lesions_alone():
    signs = torch.tensor([[0.5] * 8, [math.nan] * 8])
    predicted = torch.zeros(2, 8, requires_grad=True)
    loss = sign_loss(predicted, signs)
    assert loss.item() == pytest.approx(0.125)
    loss.backward()
    assert (predicted.grad[1] == 0).all()
    assert (predicted.grad[0] == -0.5 / 8).all()


def context(**settings):
    config = build(PretrainConfig, {"objective": "signs", "source": {"name": "phantom"}, **settings})
    return TaskContext(
        config,
        find_model("usvit_small"),
        3,
        6,
        lambda images, _: images.permute(0, 3, 1, 2).float() / 255,
        torch.device("cpu"),
    )


def test_the_loss_is_the_sum_of_class_signs_and_mask_and_the_network_is_saved_alone():
    network = create_model("usvit_small", n_classes=3, image_size=64)
    task = make(context(model={"image_size": 64}, signs={"weight": 0.0, "mask_weight": 0.0}), network)
    assert task.network(task.module) is network
    batch = {
        "images": torch.randint(0, 255, (4, 64, 64, 3), dtype=torch.uint8),
        "targets": torch.tensor([0, 1, 2, 1]),
        "signs": torch.zeros(4, 8),
        "lesions": torch.zeros(4, 32, 32, dtype=torch.uint8),
    }
    task.module.train()
    found = task.loss(task.module, batch, 0)
    expected = F.cross_entropy(task.module(batch["images"].permute(0, 3, 1, 2).float() / 255)[0], batch["targets"])
    assert found.item() == pytest.approx(4 * expected.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"source": {"name": "fractals"}}, r"objective signs .* source\.name is fractals: set source\.name to phantom"),
        ({"loss": {"mask_weight": 1}}, r"loss\.mask_weight is for 'usvit cv'.*signs\.mask_weight"),
        ({"mix": {"mixup": 0.2}}, "objective signs uses no labels to mix"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(UsvitError, match=said):
        context(**settings)


def test_nothing_is_augmented_a_second_time_on_a_gpu():
    assert not views_on_device(context().config, "cuda")
