"""The head on kept features is the network, for every family; the backbone is run as seldom as can be."""

import lightning_fabric
import numpy as np
import pytest
import timm
import torch
from torch import nn

import usvit.models.architectures  # noqa: F401 - registers ours with timm
from tests.messages import record_messages
from tests.models.test_trainable import FAMILIES, SMALL, network
from usvit.data.loading import array_cache
from usvit.data.loading.pixel_store import PixelStore
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.models.trainable import set_trainable
from usvit.progress import NoProgress
from usvit.training.head_training import FeatureStore, HeadTraining

PREPROCESSING = Preprocessing(64, "pad", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class Said(NoProgress):
    def __init__(self):
        self.lines = record_messages()


def pixels(size, n=7):
    return PixelStore(np.random.default_rng(0).integers(0, 255, (n, size, size, 3), dtype=np.uint8))


def head_training(store, *, augmented=False, precision="32-true", said=None, cache=None, batch_size=3):
    fabric = lightning_fabric.Fabric(accelerator="cpu", devices=1, precision=precision)
    said = said or Said()
    options = {"augmented": augmented, "batch_size": batch_size, "progress": said, "cache": cache}
    return HeadTraining(store, fabric, PREPROCESSING, **options)


def everything(store):
    return torch.from_numpy(store[np.arange(len(store))])


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ("vgg", "resnet50")])
def test_the_head_on_kept_features_is_the_network(family, precision):
    model = network(family)
    set_trainable(model, "head")
    store = pixels(FAMILIES[family][1].get("img_size", 224 if "hybrid" in family else 64))
    said = Said()
    subject = head_training(store, precision=precision, said=said).subject(model)
    assert said.lines == [] and isinstance(subject.store, FeatureStore) and len(subject.store) == len(store)
    model.eval()
    fabric = lightning_fabric.Fabric(accelerator="cpu", devices=1, precision=precision)
    with torch.no_grad(), fabric.autocast():
        expected = model(PREPROCESSING.normalised(everything(store))).float()
        found = subject.module(subject.prepare(everything(subject.store))).float()
    assert torch.allclose(found, expected, atol=1e-5 if precision == "32-true" else 0.02)
    parts = {id(parameter) for parameter in subject.module.parameters()}
    assert parts == {id(parameter) for parameter in model.parameters() if parameter.requires_grad}


def passes_of(model):
    """How many images went through a network's blocks."""
    counted = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: counted.append(len(inputs[0])))
    return counted


def small_vit(seed=0):
    torch.manual_seed(seed)
    model = timm.create_model("vit_tiny_patch16_224", num_classes=3, **SMALL)
    set_trainable(model, "head")
    return model


def test_folds_with_one_backbone_share_one_pass_and_another_backbone_has_its_own():
    store = pixels(32)
    heads = head_training(store)
    counts = []
    for fold in range(3):
        model = small_vit()
        nn.init.normal_(model.head.weight)  # a new head in each fold: it has no part in the features
        counts.append(passes_of(model))
        subject = heads.subject(model)
        assert subject.module.parts[0] is model.head, fold
    tried = 2  # images by which the head is compared with the network
    assert [sum(count) for count in counts] == [tried + len(store), tried, tried]
    other = small_vit(seed=1)
    counted = passes_of(other)
    heads.subject(other)
    assert sum(counted) == tried + len(store)


def test_a_change_of_one_weight_anywhere_is_another_backbone():
    store = pixels(32)
    heads = head_training(store)
    before = heads.subject(small_vit()).store
    model = small_vit()
    with torch.no_grad():
        model.blocks[1].mlp.fc2.bias[3] += 1e-3
    assert heads.subject(model).store is not before


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The folder of the features on disk."""
    monkeypatch.setattr(array_cache, "cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "features"


def computed(model, **options):
    """Features of a new run, and whether all images went through the network for them."""
    store = options.pop("store", pixels(32))
    counted = passes_of(model)
    subject = head_training(store, **options).subject(model)
    return subject.store.features, sum(counted) >= len(store) + 2


def test_a_later_run_has_the_same_features_without_computing_them(kept):
    plain, _ = computed(small_vit())
    assert not kept.exists(), "it was not asked for"
    first, once = computed(small_vit(), cache=True)
    again, twice = computed(small_vit(), cache=True)
    assert once and not twice
    assert first.tobytes() == plain.tobytes() == again.tobytes()
    assert computed(small_vit(), cache=False)[1], "the user asks for new ones"


def test_what_changes_the_features_computes_them_again(kept, monkeypatch):
    computed(small_vit(), cache=True)
    other, last = pixels(32), small_vit()
    other.pixels[-1, 0, 0, 0] ^= 1
    with torch.no_grad():
        last.norm.bias[0] += 1e-3
    code = small_vit()
    code.blocks[0].register_forward_hook(lambda module, inputs, output: 1.01 * output)
    assert computed(small_vit(), cache=True, store=other)[1]
    assert computed(last, cache=True)[1]
    assert computed(code, cache=True)[1]
    assert computed(small_vit(), cache=True, precision="bf16-mixed")[1]
    assert computed(small_vit(), cache=True, batch_size=2)[1]
    monkeypatch.setattr(timm, "__version__", "another")
    assert computed(small_vit(), cache=True)[1]


def test_a_damaged_file_is_computed_again(kept):
    first, _ = computed(small_vit(), cache=True)
    (entry,) = kept.iterdir()
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)
    again, computed_again = computed(small_vit(), cache=True)
    assert computed_again and again.tobytes() == first.tobytes()


def test_with_augmentation_the_backbone_is_run_in_each_step_without_gradients():
    model = small_vit()
    subject = head_training(pixels(32), augmented=True).subject(model)
    assert isinstance(subject.store, PixelStore)
    features = subject.prepare(everything(subject.store))
    assert features.shape == (7, 1, 24) and not features.requires_grad
    subject.module.train()
    subject.module(subject.prepare(everything(subject.store))).sum().backward()
    assert model.head.weight.grad is not None and model.head.training and not model.blocks.training
    assert all(parameter.grad is None for parameter in model.blocks.parameters())


class Louder(nn.Module):
    """A network that does something after its classifier."""

    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten()), nn.Linear(48, 3)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def get_classifier(self):
        return self.fc

    def forward(self, x):
        return 3 * self.fc(self.body(x))


class Uncalled(Louder):
    def forward(self, x):
        return nn.functional.linear(self.body(x), self.fc.weight)


@pytest.mark.parametrize(
    ("kind", "why"), [(Louder, "has other layers besides its classifier"), (Uncalled, "is not called")]
)
def test_a_network_whose_head_is_more_than_its_classifier_is_trained_whole_and_it_says_so(kind, why):
    """Also where the head starts at zero, so that any features give the same."""
    model, store, said = kind(), pixels(32), Said()
    subject = head_training(store, said=said).subject(model)
    assert subject.module is model and subject.store is store
    assert len(said.lines) == 1 and why in said.lines[0] and "not on stored features" in said.lines[0]
    assert torch.equal(subject.prepare(everything(store)), PREPROCESSING.normalised(everything(store)))


def test_the_comparison_leaves_weights_and_random_numbers_as_they_were():
    model = small_vit()
    before, state = {key: value.clone() for key, value in model.state_dict().items()}, torch.get_rng_state()
    head_training(pixels(32)).subject(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
