"""Cost of an image for each task, against the products written down: the basis of MFU."""

import pytest
import torch
from torch import nn

from tests.upstream.pretraining.test_beit import SEEDS, beit
from tests.upstream.pretraining.test_dino import NO_CLASSES, SMALL, dino
from tests.upstream.pretraining.test_distill import HALF, config, plan_of
from tests.upstream.pretraining.test_tokenizer import tiny
from tests.upstream.pretraining.toy import plan, tiny_vit
from usvit.models.complexity import Cost, count
from usvit.models.zoo import find_model
from usvit.training import Teacher
from usvit.upstream.pretraining import mae, masked_patch, supervised
from usvit.upstream.pretraining.block_masks import block_masks
from usvit.upstream.pretraining.distill import Distill

PATCHES, PIXELS, WIDTH = 16, 3 * 8 * 8, 16
STEM = PATCHES * PIXELS * WIDTH


def layers(tokens, width, mlp, depth=2):
    """Queries, keys, values and the projection; scores and their sums; the two maps of the MLP."""
    return depth * (4 * tokens * width**2 + 2 * tokens**2 * width + 2 * tokens * width * mlp)


def convolutions(width):
    """One layer of the tokenizer: 7 x 7 of each channel, and an MLP four times as wide."""
    return PATCHES * (49 * width + 2 * width * 4 * width)


def test_an_operation_is_counted_thrice_where_it_learns_and_once_where_it_is_asked():
    assert Cost(5, 7).operations == 2 * (3 * 5 + 7)


@pytest.mark.slow
def test_the_cost_of_labels_is_the_networks_forward_pass():
    settings = config(distill={"kind": "none"})
    network, spec = tiny_vit(), find_model("vit_ti16")
    assert supervised.make(plan_of(settings), network).cost(32) == Cost(STEM + layers(17, 16, 32) + WIDTH * 3)
    from usvit.models.build import build_model
    from usvit.models.weights import Weights

    whole = build_model(spec, Weights("scratch"), n_classes=10, image_size=64).train()
    assert supervised.make(plan_of(settings), whole).cost(64).trained == count(spec, 64, 10).macs
    assert whole.training and all(one.requires_grad and one.device.type == "cpu" for one in whole.parameters())


def test_a_teacher_is_asked_at_its_own_size():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5))
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 5))
    asked = Teacher(teacher, image_size=24, mean=HALF[0], std=HALF[1], student=HALF, device=torch.device("cpu"))
    assert Distill(plan_of(config()), network, asked).cost(32) == Cost(3 * 32 * 32 * 5, 3 * 24 * 24 * 5)


def test_the_encoder_sees_a_quarter_and_the_decoder_all():
    small = {"decoder_width": 24, "decoder_depth": 3, "decoder_heads": 2}
    made = mae.make(plan(objective="mae", mae=small), tiny_vit())
    seen, masked = 4, 12
    encoder = STEM + layers(seen + 1, WIDTH, 32)
    decoder = (seen + 1) * WIDTH * 24 + layers(PATCHES + 1, 24, 96, depth=3) + masked * 24 * PIXELS
    assert made.cost(32) == Cost(encoder + decoder)


@pytest.mark.parametrize("local", [0, 3])
def test_the_student_sees_all_crops_and_the_teacher_the_global_ones(local):
    head = WIDTH * SMALL["hidden"] + SMALL["hidden"] ** 2 + SMALL["bottleneck"] * (SMALL["hidden"] + SMALL["outputs"])
    crop = STEM + layers(17, WIDTH, 32) + head
    small = STEM // 4 + layers(5, WIDTH, 32) + head  # 2 x 2 patches
    resized = dino(tiny_vit(**NO_CLASSES), local).cost(32)
    positions = resized.trained - 2 * crop - local * small
    assert positions == local * WIDTH * (2 * 4 * 4 + 2 * 2 * 4), "rows, then columns, of the table of positions"
    assert resized.frozen == 2 * crop


def test_the_colours_of_half_the_patches_are_asked_for():
    made = masked_patch.make(plan(objective="masked_patch"), tiny_vit())
    assert made.cost(32) == Cost(STEM + layers(17, WIDTH, 32) + 8 * WIDTH * 512)


def test_the_words_of_the_masked_patches_are_guessed_and_the_tokenizer_is_asked():
    cost = beit().cost(32)
    guessed, rest = divmod(cost.trained - STEM - layers(17, WIDTH, 32), WIDTH * 11)
    assert rest == 0
    assert guessed == pytest.approx(block_masks(SEEDS, (4, 4), 0.4, 2).sum(1).float().mean().item(), abs=0.6)
    assert cost.frozen == PATCHES * PIXELS * 8 + convolutions(8) + PATCHES * 8 * 4 + PATCHES * 4 * 11


def test_the_tokenizer_learns_but_for_the_comparison_with_all_codes():
    encoder = PATCHES * PIXELS * 8 + convolutions(8) + PATCHES * 8 * 4
    decoder = PATCHES * 4 * 8 + convolutions(8) + PATCHES * 8 * PIXELS
    assert tiny().cost(32) == Cost(encoder + decoder, PATCHES * 4 * 6)
