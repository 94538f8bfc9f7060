import dataclasses
import json
import time
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from tests.models.conftest import write_weights
from tests.records.contents import content, network
from usvit.data.splits.leakage import seen_by
from usvit.errors import UsvitError
from usvit.files import sha256_of_file, sha256_of_text
from usvit.models.build import build_model, input_statistics
from usvit.models.spec import Pretrained
from usvit.models.weights import Weights, pins, resolve_weights
from usvit.models.weights.pins import Pin, add_pin, pin_of, read_pins
from usvit.models.weights.resolve import find_pin
from usvit.models.zoo import ZOO, find_model

TINY = find_model("vit_ti16")
REPOSITORY = "timm/vit_tiny_patch16_224.augreg_in21k"


def test_scratch_needs_nothing():
    assert resolve_weights("scratch", TINY) == Weights("scratch")


def test_file_is_recorded_by_name_and_hash_but_never_by_its_path(tmp_path):
    path = tmp_path / "secret project" / "tiny.safetensors"
    write_weights(path, "vit_ti16", n_classes=7)
    weights = resolve_weights(str(path), TINY)
    assert weights.path == path
    record = weights.record().content()
    stated = {"source": "file", "name": "tiny.safetensors", "sha256": sha256_of_file(path)}
    assert record == stated | dict.fromkeys(("license", "upstream", "pretrained_by"))


@pytest.mark.slow
def test_file_is_read_once_whatever_becomes_of_it(tmp_path):
    path = tmp_path / "w.safetensors"
    state = write_weights(path, "vit_ti16", n_classes=7)
    weights = resolve_weights(str(path), TINY)
    path.write_bytes(b"another file")
    for _ in range(2):
        own = build_model(TINY, weights, n_classes=3, image_size=224).state_dict()
        assert torch.equal(own["blocks.0.norm1.weight"], state["blocks.0.norm1.weight"])


def test_a_demanded_hash_is_checked(tmp_path):
    path = tmp_path / "w.safetensors"
    write_weights(path, "vit_ti16", n_classes=7)
    right = sha256_of_file(path)
    assert resolve_weights(str(path), TINY, right).sha256 == right
    with pytest.raises(UsvitError, match=rf"w.safetensors: the SHA-256 is {right}, but .* requires {'0' * 64}"):
        resolve_weights(str(path), TINY, "0" * 64)
    with pytest.raises(UsvitError, match=r"weights_sha256 requires a file, but --weights scratch has none"):
        resolve_weights("scratch", TINY, right)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone.pth", "no such file"),
        ("imagenet", "no such file"),
        ("weights.zip", "not read"),
    ],
)
def test_what_is_no_weights_file_is_told_by_its_name(tmp_path, name, says):
    if name.endswith("zip"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(
        UsvitError, match=rf"--weights .*{name}: .*{says}(.|\n)*\.safetensors, \.pth, \.pt, \.bin, \.npz"
    ):
        resolve_weights(str(tmp_path / name), TINY)


@pytest.fixture
def hub_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty Hugging Face cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path


@pytest.fixture(autouse=True)
def own_pins(monkeypatch, tmp_path):
    """The user's file of pins, empty."""
    path = tmp_path / "settings" / "pins.json"
    monkeypatch.setattr(pins, "own_pins", lambda: path)
    return path


def put_in_cache(cache: Path, file: str, repository: str = REPOSITORY) -> dict[str, torch.Tensor]:
    folder = cache / f"models--{repository.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    return write_weights(folder / "snapshots" / commit / file, "vit_ti16", n_classes=21)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_cached_hub_weights_are_used_without_the_network(hub_cache, no_network, file):
    state = put_in_cache(hub_cache, file)
    weights = resolve_weights("hub", TINY)
    assert weights.source == "hub"
    assert weights.name == REPOSITORY
    assert weights.license == "apache-2.0"
    assert weights.sha256 == sha256_of_file(weights.path)
    model = build_model(TINY, weights, n_classes=3, image_size=224)
    own = model.state_dict()
    assert all(torch.equal(own[key], value) for key, value in state.items() if not key.startswith("head."))
    assert (model.head.weight == 0).all()


@pytest.mark.parametrize("offline", [True, False])
def test_weights_neither_cached_nor_reachable_stop_at_once_and_say_what_to_do(
    hub_cache, no_network, monkeypatch, offline
):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits and tries again"))
    with pytest.raises(UsvitError) as caught:
        resolve_weights("hub", TINY)
    text = str(caught.value)
    assert REPOSITORY in text
    assert "--weights scratch" in text
    assert "--weights FILE" in text
    assert ("HF_HUB_OFFLINE is set" in text) == offline


def test_an_address_of_the_hub_that_is_none_is_no_connection(hub_cache, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "nonsense")
    with pytest.raises(UsvitError, match="neither in the Hugging Face cache nor reachable"):
        resolve_weights("hub", TINY)


def test_a_network_without_hub_weights_says_so(hub_cache, no_network):
    with pytest.raises(UsvitError, match=r"no hub weights for the model timm:vit_small_patch16_36x1_224.*scratch"):
        resolve_weights("hub", find_model("timm:vit_small_patch16_36x1_224"))


TWO = dataclasses.replace(
    TINY, weights={**TINY.weights, "in1k": Pretrained("deit_tiny_patch16_224.fb_in1k", "facebookresearch")}
)


def test_another_upstream_is_chosen_by_name_with_its_own_statistics(hub_cache, no_network):
    put_in_cache(hub_cache, "model.safetensors", "timm/deit_tiny_patch16_224.fb_in1k")
    weights = resolve_weights("hub:in1k", TWO)
    assert (weights.upstream, weights.pretrained_by) == ("in1k", "facebookresearch")
    assert weights.name == "timm/deit_tiny_patch16_224.fb_in1k"
    assert input_statistics(TWO, weights)[0] == (0.485, 0.456, 0.406)
    assert input_statistics(TWO)[0] == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("choice", ["hub:in22k", "hub:"])
def test_an_unknown_upstream_is_answered_with_the_known_ones(choice):
    with pytest.raises(UsvitError, match=r"Unknown pre-trained weights of vit_ti16 .*in1k.*usvit models info vit_ti16"):
        resolve_weights(choice, TWO)


def test_cached_hub_weights_that_are_damaged_are_named(hub_cache, no_network):
    put_in_cache(hub_cache, "model.safetensors")
    file = next(hub_cache.rglob("model.safetensors"))
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UsvitError, match=r"model.safetensors are damaged"):
        resolve_weights("hub", TINY)


def make_run(root, n_folds=2, state="finished", model="vit_ti16", **metadata):
    """A run directory with what a later run needs of it."""
    for fold in range(n_folds):
        write_weights(root / f"fold-{fold}" / "model.safetensors", model, n_classes=3, seed=fold)
        statistics = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
        stated = network(
            architecture=model,
            timm=find_model(model).architecture,
            seen_sha256={"train": [f"image-{fold}"], "val": [], "upstream": []},
            preprocessing={"image_size": 64, "resize": "squash", "crop": "tissue", **statistics},
        )
        (root / f"fold-{fold}" / "model.json").write_text(json.dumps(stated | metadata))
    (root / "run.json").write_text(json.dumps(content("run", state=state, folds={"n": n_folds})))
    return root


@pytest.mark.slow
@pytest.mark.parametrize(("part", "value"), [("heads", 6), ("attention", "axial"), ("position_at", "shared")])
def test_other_parts_that_no_tensor_shows_are_refused(part, value, tmp_path):
    """Six heads have the tensors of three: loaded into them, the network would be another one, without a word."""
    run = make_run(tmp_path / "first", vit={part: value})
    with pytest.raises(UsvitError, match=rf"another network. Pass --set model.vit.{part}={value}"):
        resolve_weights(str(run), TINY)
    assert resolve_weights(str(run), find_model("vit_ti16", {part: value})).name == "first"
    named = make_run(tmp_path / "second", vit={"heads": 3})  # what vit_ti16 has anyway
    assert resolve_weights(str(named), TINY).name == "second"


@pytest.mark.slow
def test_each_fold_begins_where_the_same_fold_of_a_run_ended(tmp_path):
    run = make_run(tmp_path / "first")
    weights = resolve_weights(str(run), TINY)
    assert weights.source == "run" and weights.name == "first"
    files = [run / f"fold-{fold}" / "model.safetensors" for fold in (0, 1)]
    assert weights.record().content()["folds"] == [sha256_of_file(file) for file in files]
    assert weights.sha256 == sha256_of_text("".join(f"{sha256_of_file(file)}\n" for file in files))
    for fold in (0, 1):
        of_fold = weights.of_fold(fold)
        seen = seen_by(of_fold.metadata)
        assert len(seen) == 1 and f"image-{fold}" in seen
        model = build_model(TINY, of_fold, n_classes=2, image_size=64)
        key = "blocks.0.attn.qkv.weight"
        assert torch.equal(model.state_dict()[key], load_file(files[fold])[key])
    assert input_statistics(TINY, weights) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


@pytest.mark.slow
def test_a_fold_s_file_that_changes_while_a_run_waits_for_it_is_refused(tmp_path):
    weights = resolve_weights(str(make_run(tmp_path / "first")), TINY)
    write_weights(tmp_path / "first" / "fold-1" / "model.safetensors", "vit_ti16", n_classes=3, seed=9)
    weights.of_fold(0).read()
    with pytest.raises(UsvitError, match=r"fold-1/model.safetensors have been changed since the run began"):
        weights.of_fold(1).read()


@pytest.mark.slow
def test_a_single_fold_may_be_named_and_a_run_of_one_is_its_fold(tmp_path):
    run = make_run(tmp_path / "first")
    one = resolve_weights(str(run / "fold-1"), TINY)
    assert (one.source, one.name, one.folds) == ("run", "first/fold-1", ())
    train = resolve_weights(str(make_run(tmp_path / "train", n_folds=1)), TINY)
    assert (train.source, train.name, train.folds) == ("run", "train", ())
    assert train.of_fold(3) is train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda run: (run / "run.json").unlink(), "is not a run of usvit: it has neither run.json"),
        (lambda run: (run / "run.json").write_text("{"), "run.json: it is damaged"),
        (lambda run: (run / "run.json").write_text("[]"), "run.json: expected a JSON object"),
        (
            lambda run: (run / "run.json").write_text(json.dumps(content("run", state="running"))),
            "is not finished",
        ),
        (lambda run: (run / "fold-1" / "model.json").unlink(), "fold-1 has no model.json"),
        (lambda run: (run / "fold-0" / "model.safetensors").unlink(), "fold-0 has no model.safetensors"),
        (lambda run: (run / "fold-0" / "model.json").write_text("no json"), "model.json: it is damaged"),
    ],
)
def test_a_run_that_is_not_whole_is_told_by_what_is_missing(tmp_path, spoil, says):
    run = make_run(tmp_path / "first")
    spoil(run)
    with pytest.raises(UsvitError, match=says):
        resolve_weights(str(run), TINY)


def test_a_run_of_another_network_is_refused_and_the_same_one_by_another_name_is_not(tmp_path):
    run = make_run(tmp_path / "first")
    with pytest.raises(UsvitError, match=r"were trained as vit_ti16, but the model is vit_s32\. Pass --model vit_ti16"):
        resolve_weights(str(run), find_model("vit_s32"))
    resolve_weights(str(run), find_model("timm:vit_tiny_patch16_224"))
    with pytest.raises(UsvitError, match="were trained as vit_ti16"):
        resolve_weights(str(run / "fold-0" / "model.safetensors"), find_model("vit_s32"))


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_hub_weights_without_a_pin_say_so_and_what_they_are(hub_cache, no_network):
    put_in_cache(hub_cache, "model.safetensors")
    weights = resolve_weights("hub", TINY)
    assert weights.record().content()["pinned"] is False and weights.record().content()["revision"] == COMMIT
    assert "are not pinned" in weights.warning and COMMIT in weights.warning and weights.sha256 in weights.warning
    assert Weights("scratch").warning is None and "pinned" not in Weights("scratch").record().content()


def test_a_pin_is_what_the_hub_had_and_is_demanded_from_then_on(hub_cache, own_pins, no_network):
    put_in_cache(hub_cache, "model.safetensors")
    repository, pin = find_pin("hub", TINY)
    add_pin(own_pins, repository, pin)
    assert pin_of(REPOSITORY) == pin == Pin(COMMIT, "model.safetensors", resolve_weights("hub", TINY).sha256)
    weights = resolve_weights("hub", TINY)
    assert weights.record().content()["pinned"] is True and weights.warning is None
    file = next(hub_cache.rglob("model.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1  # another value in one weight
    file.write_bytes(content)
    with pytest.raises(UsvitError, match=rf"not those that are pinned for {REPOSITORY}.*{pin.sha256} is required"):
        resolve_weights("hub", TINY)
    assert find_pin("hub", TINY)[1].sha256 != pin.sha256  # what is pinned again is what is there


def test_another_revision_than_the_pinned_one_is_not_taken(hub_cache, own_pins, no_network):
    put_in_cache(hub_cache, "model.safetensors")
    add_pin(own_pins, REPOSITORY, Pin("f" * 40, "model.safetensors", "0" * 64))
    with pytest.raises(UsvitError, match="neither in the Hugging Face cache nor reachable"):
        resolve_weights("hub", TINY)


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"a": 1}', '{"a": {"revision": "main", "file": "x", "sha256": "0"}}', '{"a": {}}']
)
def test_a_damaged_file_of_pins_is_named(own_pins, content):
    own_pins.parent.mkdir(parents=True)
    own_pins.write_text(content)
    with pytest.raises(UsvitError, match=str(own_pins)):
        pin_of(REPOSITORY)


def test_the_shipped_pins_are_whole():
    packages = {one.package for spec in ZOO.values() for one in spec.weights.values() if one.package}
    shipped = read_pins(pins.SHIPPED)
    assert packages <= set(shipped)
    assert all(name.startswith("timm/") for name in set(shipped) - packages)
