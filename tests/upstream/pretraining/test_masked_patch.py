import copy
import math

import pytest
import torch

from tests.upstream.pretraining.toy import STEMS, batch, plan, tiny_vit
from usvit.errors import UsvitError
from usvit.upstream.config.pretrain import MaskedPatchConfig
from usvit.upstream.pretraining.masked_patch import (
    Corruption,
    corrupted_patches,
    downsized_colours,
    make,
    mean_colours,
)
from usvit.upstream.pretraining.patches import Tokens


def tiny(network=None, **config):
    return make(plan(objective="masked_patch", masked_patch=config), network or tiny_vit())


def colour_by_hand(pixels: list[list[int]], bits: int) -> int:
    """Three means, their highest bits as text, side by side."""
    text = ""
    for channel in range(3):
        mean = sum(pixel[channel] for pixel in pixels) / len(pixels)
        text += f"{math.floor(mean):08b}"[:bits]
    return int(text, 2)


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_the_class_is_the_highest_bits_of_the_mean_red_green_and_blue(bits: int):
    stored = torch.randint(0, 256, (2, 3, 12, 8), generator=torch.Generator().manual_seed(bits))
    got = mean_colours(stored.float(), 4, bits)
    assert got.shape == (2, 6) and got.max() < 2 ** (3 * bits)
    for image in range(2):
        for row in range(3):
            for column in range(2):
                patch = stored[image, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
                pixels = patch.flatten(1).T.tolist()
                assert got[image, 2 * row + column] == colour_by_hand(pixels, bits)


def test_the_mean_comes_before_the_bits():
    """Half 0 and half 255 are bins 0 and 7; their mean is 127.5, in bin 3."""
    pixels = torch.zeros(1, 3, 4, 4)
    pixels[:, :, :2] = 255
    assert mean_colours(pixels, 4, 3).item() == 3 * 64 + 3 * 8 + 3


def test_a_patch_of_one_colour_keeps_it_though_its_pixels_were_normalised():
    """Multiples of 32 lie on the borders of the bins."""
    inputs = plan().inputs
    for grey in range(0, 256, 32):
        stored = torch.full((1, 32, 32, 3), grey, dtype=torch.uint8)
        task = tiny()
        _, colours = task._predict(task.module, inputs(stored, torch.zeros(1)), torch.tensor([3]))
        level = grey // 32
        assert (colours == level * 73).all()


def test_colours_at_the_ends_of_the_range_stay_within_it():
    assert mean_colours(torch.full((1, 3, 4, 4), 300.0), 4, 3).item() == 511
    assert mean_colours(torch.full((1, 3, 4, 4), -5.0), 4, 3).item() == 0


def test_half_of_the_patches_are_corrupted_of_these_80_10_and_10_per_cent():
    corruption = Corruption(torch.arange(4000), 196, MaskedPatchConfig())
    assert corruption.corrupted.shape == (4000, 98)
    inside = torch.zeros(4000, 196, dtype=torch.bool).scatter(1, corruption.corrupted, True)
    swapped = corruption.source != torch.arange(196)
    n = 4000 * 98
    assert corruption.replaced.sum() / n == pytest.approx(0.8, abs=0.004)
    assert swapped.sum() / n == pytest.approx(0.1, abs=0.003)
    assert not (swapped & corruption.replaced).any()
    assert not ((swapped | corruption.replaced) & ~inside).any()  # the other half is left alone
    others = (corruption.source - torch.arange(196))[swapped] % 196
    assert others.min() == 1 and others.max() == 195  # any other patch, and never itself
    assert (torch.bincount(others)[1:] / len(others) * 195 - 1).abs().max() < 0.3  # 4 standard errors
    assert (inside.float().mean(0) - 0.5).abs().max() < 0.05


def test_corrupted_embeddings_are_what_the_paper_says():
    corruption = Corruption(torch.tensor([5, 6]), 16, MaskedPatchConfig(replaced=0.4, swapped=0.4))
    patches, token = torch.randn(2, 16, 4), torch.randn(1, 1, 4)
    got = corruption.apply(patches, token)
    kinds = set()
    for image in range(2):
        for place in range(16):
            if corruption.replaced[image, place]:
                kinds.add("mask")
                wanted = token[0, 0]
            else:
                kinds.add("own" if corruption.source[image, place] == place else "other")
                wanted = patches[image, corruption.source[image, place]]
            assert torch.equal(got[image, place], wanted)
    assert kinds == {"mask", "own", "other"}


def test_the_loss_is_the_mean_over_corrupted_patches_of_the_log_probability():
    task, given = tiny(), batch(2)
    torch.nn.init.normal_(task.module.colour.weight, std=0.5)
    images = plan().inputs(given["images"], given["seeds"])
    module = task.module.eval()
    tokens = Tokens.of(module.network, "x")
    with torch.no_grad():
        got = task.loss(module, given, 0).item()
        total = 0.0
        for image in range(2):
            corruption = Corruption(given["seeds"][image : image + 1], 16, MaskedPatchConfig())
            x = tokens.embed(module.network, images[image : image + 1])[0]
            changed = []
            for place in range(16):
                source = int(corruption.source[0, place])
                changed.append(module.mask_token[0, 0] if corruption.replaced[0, place] else x[source])
            logits = module.colour(tokens.encode(module.network, torch.stack(changed)[None])[1][0])
            losses = []
            for place in corruption.corrupted[0].tolist():
                row, column = divmod(place, 4)
                patch = given["images"][image, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
                colour = colour_by_hand(patch.reshape(64, 3).tolist(), 3)
                exponents = logits[place].double().exp()
                losses.append(-math.log(exponents[colour] / exponents.sum()))
            assert len(losses) == 8
            total += sum(losses) / 8
    assert got == pytest.approx(total, rel=1e-4)


def test_a_downsized_patch_has_the_colours_of_its_4_x_4_cells():
    """Appendix B.1.2, target 2: 16 predictions of 512 colours."""
    stored = torch.randint(0, 256, (2, 3, 32, 16), generator=torch.Generator().manual_seed(4))
    got = downsized_colours(stored.float(), 16, 3)
    assert got.shape == (2, 2, 16)
    for image in range(2):
        for patch in range(2):
            for row in range(4):
                for column in range(4):
                    top, left = 16 * patch + 4 * row, 4 * column
                    cell = stored[image, :, top : top + 4, left : left + 4].flatten(1).T.tolist()
                    assert got[image, patch, 4 * row + column] == colour_by_hand(cell, 3)


def outputs_by_hand(task, given, image):
    """The outputs for one image, patch by patch, and the places of its corrupted patches."""
    module, tokens = task.module.eval(), Tokens.of(task.module.network, "x")
    pixels = plan().inputs(given["images"], given["seeds"])[image : image + 1]
    corruption = Corruption(given["seeds"][image : image + 1], 16, MaskedPatchConfig())
    patches = corruption.apply(tokens.embed(module.network, pixels), module.mask_token)
    outputs = module.colour(tokens.encode(module.network, patches)[1][0])
    return outputs, corruption.corrupted[0].tolist(), pixels[0]


def test_the_loss_of_downsized_patches_is_the_mean_of_16_cross_entropies():
    task, given = tiny(target="downsized"), batch(2)
    assert task.module.colour.out_features == 16 * 512
    torch.nn.init.normal_(task.module.colour.weight, std=0.5)
    with torch.no_grad():
        got, total = task.loss(task.module.eval(), given, 0).item(), 0.0
        for image in range(2):
            outputs, places, _ = outputs_by_hand(task, given, image)
            losses = []
            for place in places:
                row, column = divmod(place, 4)
                for cell in range(16):
                    top, left = 8 * row + 2 * (cell // 4), 8 * column + 2 * (cell % 4)
                    pixels = given["images"][image, top : top + 2, left : left + 2].reshape(4, 3).tolist()
                    log_prob = outputs[place, 512 * cell : 512 * (cell + 1)].double().log_softmax(0)
                    losses.append(-log_prob[colour_by_hand(pixels, 3)].item())
            assert len(losses) == 8 * 16
            total += sum(losses) / len(losses)
    assert got == pytest.approx(total, rel=1e-4)


def test_the_regression_is_of_all_pixels_of_a_patch_in_three_channels():
    """Appendix B.1.2, target 3: L2, "256 regressions on the 3 RGB channels" for patches of 16 pixels."""
    task, given = tiny(target="pixels"), batch(2)
    assert task.module.colour.out_features == 3 * 8 * 8
    with torch.no_grad():
        got, total = task.loss(task.module.eval(), given, 0).item(), 0.0
        for image in range(2):
            outputs, places, pixels = outputs_by_hand(task, given, image)
            losses = []
            for place in places:
                row, column = divmod(place, 4)
                for number in range(3 * 8 * 8):
                    y, x, channel = number // 24, number // 3 % 8, number % 3
                    wanted = pixels[channel, 8 * row + y, 8 * column + x].item()
                    losses.append((outputs[place, number].item() - wanted) ** 2)
            total += sum(losses) / len(losses)
    assert got == pytest.approx(total, rel=1e-4)
    figures = task.evaluate(task.module, plan().inputs(given["images"], given["seeds"]), torch.zeros(2))
    assert list(figures) == ["val_loss"]


def test_the_accuracy_of_downsized_patches_counts_cells():
    task, given = tiny(target="downsized"), batch(1)
    images = plan().inputs(given["images"], given["seeds"])
    with torch.no_grad():
        torch.nn.init.zeros_(task.module.colour.weight)
        _, wanted = task._predict(task.module.eval(), images, torch.arange(1))
        colour = wanted.flatten().mode().values
        task.module.colour.bias.view(16, 512)[:, colour] = 1.0
        accuracy = task.evaluate(task.module, images, torch.zeros(1))["val_accuracy"]
    assert accuracy.item() == pytest.approx((wanted == colour).float().mean().item()) and 0 < accuracy < 1


def test_patches_that_have_no_4_x_4_cells_are_refused():
    with pytest.raises(UsvitError, match="patches have 6 pixels"):
        tiny(tiny_vit(patch=6, img_size=24), target="downsized")


def test_pixels_under_the_mask_embedding_do_not_reach_the_prediction():
    task, images = tiny(replaced=1.0, swapped=0.0), torch.randn(1, 3, 32, 32)
    seeds = torch.tensor([11])
    hidden = Corruption(seeds, 16, MaskedPatchConfig(replaced=1.0, swapped=0.0)).corrupted[0]
    other = images.clone()
    for place in hidden.tolist():
        row, column = divmod(place, 4)
        other[:, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = torch.randn(1, 3, 8, 8)
    module = task.module.eval()
    with torch.no_grad():
        assert torch.allclose(module(images, seeds), module(other, seeds), atol=1e-6)
        assert not torch.allclose(module(images, seeds), module(images.roll(8, 3), seeds), atol=1e-4)


@pytest.mark.parametrize("stem", STEMS)
def test_gradient_reaches_every_parameter_that_trains(stem: str):
    task = tiny(tiny_vit(stem=stem))
    task.loss(task.module, batch(), 0).backward()
    without = {name for name, one in task.module.named_parameters() if one.grad is None}
    assert without == {"network.head.weight", "network.head.bias"}
    assert not any(one.requires_grad for one in task.module.network.head.parameters())


def test_portions_and_the_order_of_examples_change_no_gradient():
    gradients = []
    for portions in ([[0, 1, 2, 3]], [[2], [3, 0], [1]]):
        task, given = tiny(), batch()
        for rows in portions:
            portion = {key: value[rows] for key, value in given.items()}
            (task.loss(task.module, portion, 0) / task.normalizer(given, 0)).backward()
        gradients.append([one.grad for one in task.module.parameters() if one.requires_grad])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_every_token_is_kept_so_relative_positions_do():
    task = tiny(tiny_vit(position="relative"))
    assert math.isfinite(task.loss(task.module, batch(), 0).item())


def test_validation_counts_hits_and_corrupts_the_same_patches_every_time():
    task, given = tiny(), batch(3)
    images = plan().inputs(given["images"], given["seeds"])
    with torch.no_grad():
        first = task.evaluate(task.module.eval(), images, torch.zeros(3))
        assert first == task.evaluate(task.module, images, torch.zeros(3))
        assert first["val_loss"] > 0 and 0 <= first["val_accuracy"] <= 3
        # A head that always says the colour of a grey image is right three times in three.
        grey = plan().inputs(torch.full((3, 32, 32, 3), 100, dtype=torch.uint8), given["seeds"])
        task.module.colour.weight.zero_()
        task.module.colour.bias.copy_(torch.nn.functional.one_hot(torch.tensor(3 * 73), 512) * 50.0)
        figures = task.evaluate(task.module, grey, torch.zeros(3))
    assert figures["val_accuracy"] == 3 and figures["val_loss"] < 1e-6


@pytest.mark.parametrize(
    ("config", "said"),
    [({"replaced": 0.95}, "masked_patch.replaced 0.95 and masked_patch.swapped 0.1 .* exceeds 1")],
)
def test_shares_that_add_to_more_than_all_are_refused(config, said: str):
    with pytest.raises(UsvitError, match=said):
        tiny(**config)


def test_a_single_patch_and_a_stem_that_leaks_are_refused():
    with pytest.raises(UsvitError, match="at least two patches"):
        tiny(tiny_vit(patch=32))
    with pytest.raises(UsvitError, match="objective masked_patch masks patches, and the stem ConvStem"):
        tiny(tiny_vit(stem="conv_bn", patch=16, img_size=64))


@pytest.mark.parametrize(("count", "share", "corrupted"), [(196, 0.5, 98), (196, 0.15, 29), (2, 0.1, 1), (10, 0.3, 3)])
def test_how_many_are_corrupted(count: int, share: float, corrupted: int):
    assert corrupted_patches(count, share) == corrupted


def test_the_kept_network_is_the_encoder():
    task = tiny()
    copied = copy.deepcopy(task.module)
    assert task.network(copied) is copied.network
    assert set(task.network(copied).state_dict()) == set(tiny_vit().state_dict())


def test_a_few_steps_make_the_loss_smaller():
    task, given = tiny(), batch(8, seed=3)
    optimizer = torch.optim.AdamW([one for one in task.module.parameters() if one.requires_grad], lr=1e-2)
    losses = []
    for step in range(30):
        loss = task.loss(task.module, given, step) / 8
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
