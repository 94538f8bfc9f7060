import json

import pytest
import torch

from tests.models.conftest import SMALL_VIT, checkpoint_of, load_into, random_state, small
from usvit.errors import UsvitError
from usvit.models.weights import LoadReport

NAME = "vit_tiny_patch16_224"


def test_a_name_of_any_length_does_not_fill_the_error():
    state = random_state(NAME, **SMALL_VIT) | {"blocks." + "9" * 3000: torch.zeros(2)}
    with pytest.raises(UsvitError, match=r"unknown here: blocks\.9{90}\.\.\. \(2\)") as caught:
        load_into(small(NAME, **SMALL_VIT), checkpoint_of(state))
    assert len(str(caught.value)) < 600


def test_report_says_what_became_of_every_tensor():
    state = random_state(NAME, image_size=64, **SMALL_VIT)
    state |= {"mask_token": torch.zeros(1, 1, 24), "decoder_norm.bias": torch.zeros(3)}
    model, report = load_into(small(NAME, **SMALL_VIT), checkpoint_of(state, "model"))
    own = model.state_dict()
    assert report.loaded + len(report.new) == len(own)
    assert report.loaded + len(report.skipped) == len(state)
    assert report.line() == (
        f"{len(own) - 2} tensors loaded from its 'model', 1 resized (pos_embed 1 x 17 x 24 -> 1 x 5 x 24), 4 not used "
        "(replaced masked patches in pre-training; belongs to the decoder of pre-training (MAE); the head is new), "
        "2 new (the head's)"
    )
    assert "\n" not in report.line()
    record = json.loads(json.dumps(report.record().content()))
    assert record["tensors"] == report.loaded and record["table"] == "model"
    assert record["resized"] == [{"name": "pos_embed", "from": [1, 17, 24], "to": [1, 5, 24]}]
    assert {"why": "the head is new", "names": ["head.weight", "head.bias"]} in record["skipped"]


def test_an_empty_report_has_a_line_too():
    assert LoadReport().line() == "0 tensors loaded, 0 new (the head's)"


def test_weights_of_another_architecture_show_the_first_differences_of_each_kind():
    state = random_state(NAME, **SMALL_VIT)
    del state["norm.bias"], state["blocks.0.norm1.weight"]
    state |= {"surplus": torch.zeros(2, 3), "counter": torch.tensor(3)}
    spec = small(NAME, **{**SMALL_VIT, "mlp_ratio": 4})
    with pytest.raises(UsvitError) as caught:
        load_into(spec, checkpoint_of(state))
    text = str(caught.value)
    assert "The weights w do not fit the model timm:vit_tiny_patch16_224" in text
    assert "(--model)" in text
    assert "blocks.0.mlp.fc1.weight is 48 x 24 there and 96 x 24 here" in text
    assert "and 3 more" in text  # six tensors of two MLPs
    assert "missing there: blocks.0.norm1.weight (24), norm.bias (24)" in text
    assert "unknown here: surplus (2 x 3), counter (a number)" in text


@pytest.mark.parametrize("key", ["cls_token", "blocks.1.attn.qkv.bias", "norm.weight", "pos_embed"])
@pytest.mark.parametrize("damage", ["missing", "unknown"])
def test_one_key_too_few_or_too_many_is_enough_to_refuse(key, damage):
    state = random_state(NAME, **SMALL_VIT)
    if damage == "missing":
        del state[key]
    else:
        state[f"{key}_2"] = state[key]
    with pytest.raises(UsvitError, match=rf"{damage} .*{key}"):
        load_into(small(NAME, **SMALL_VIT), checkpoint_of(state))


@pytest.mark.parametrize("head", ["absent", "of other classes", "of as many classes", "broken"])
def test_the_head_is_new_whatever_the_file_has(head):
    state = random_state(NAME, n_classes=3 if head == "of as many classes" else 7, **SMALL_VIT)
    if head == "absent":
        del state["head.weight"], state["head.bias"]
    if head == "broken":
        state["head.weight"] = torch.zeros(1)
    model, report = load_into(small(NAME, **SMALL_VIT), checkpoint_of(state))
    assert (model.head.weight == 0).all() and model.head.weight.shape == (3, 24)
    assert report.new == ("head.weight", "head.bias")


def test_a_distilled_network_has_two_heads_and_does_not_go_into_a_plain_one():
    options = {"embed_dim": 24, "depth": 1, "num_heads": 2}
    state = random_state("deit_tiny_distilled_patch16_224", **options)
    model, report = load_into(small("deit_tiny_distilled_patch16_224", **options), checkpoint_of(state))
    assert {"head.weight", "head_dist.weight"} <= set(report.new)
    assert (model.head_dist.weight == 0).all()
    with pytest.raises(UsvitError, match=r"unknown here: dist_token \(1 x 1 x 24\)"):
        load_into(small("deit_tiny_patch16_224", **options), checkpoint_of(state))


def test_counters_of_old_files_may_be_missing_and_statistics_may_not():
    name = "test_resnet"
    import timm

    torch.manual_seed(0)
    state = timm.create_model(name, num_classes=4).state_dict()
    without = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    assert len(without) < len(state)
    model, report = load_into(small(name), checkpoint_of(without), image_size=64)
    assert report.loaded == len([key for key in without if not key.startswith("fc.")])
    assert not (model.fc.weight == 0).all()
    del without["bn1.running_mean"]
    with pytest.raises(UsvitError, match=r"bn1\.running_mean"):
        load_into(small(name), checkpoint_of(without), image_size=64)


def test_half_precision_weights_become_the_network_s_own_precision():
    state = {key: value.bfloat16() for key, value in random_state(NAME, **SMALL_VIT).items()}
    model, _ = load_into(small(NAME, **SMALL_VIT), checkpoint_of(state), image_size=64)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert torch.equal(model.norm.weight, state["norm.weight"].float())


def test_loading_does_not_change_the_checkpoint_so_that_every_fold_begins_alike():
    state = random_state(NAME, image_size=64, **SMALL_VIT) | {"mask_token": torch.zeros(1, 1, 24)}
    before = {key: value.clone() for key, value in state.items()}
    checkpoint = checkpoint_of(state)
    for _ in range(2):
        load_into(small(NAME, **SMALL_VIT), checkpoint)
    assert checkpoint.tensors.keys() == before.keys()
    assert all(torch.equal(checkpoint.tensors[key], before[key]) for key in before)
