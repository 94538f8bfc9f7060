import math

import pytest
import torch
from lightning_fabric import Fabric
from torch.nn import functional as F

from tests.upstream.pretraining.test_tokenizer import written
from tests.upstream.pretraining.toy import STEMS, Normalised, batch, plan, tiny_vit
from usvit.config import OptimConfig, TrainConfig
from usvit.data.splits.leakage import write_seen
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.errors import UsvitError
from usvit.training.task import ON_HOST
from usvit.training.trainer import training_step
from usvit.upstream.config.pretrain import TokenizerConfig
from usvit.upstream.pretraining.beit import Beit, make
from usvit.upstream.pretraining.block_masks import block_masks
from usvit.upstream.pretraining.counter_rng import uniform
from usvit.upstream.pretraining.tokenizer import Tokenizer

SEEDS = torch.arange(500) * 7919 + 5


def tokenizer(patch=8, mean=Normalised.mean, std=Normalised.std):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        made = Tokenizer(TokenizerConfig(vocabulary=11, width=8, code_width=4, patch=patch, depth=1)).eval()
    return made.requires_grad_(False), Preprocessing(32, "squash", mean, std)


def beit(network=None, words=None, **settings):
    config = plan(objective="beit", beit={"tokenizer": "runs/words", "min_block": 2} | settings)
    return Beit(config, network or tiny_vit(), words or tokenizer())


def test_no_more_than_the_share_is_masked_and_seldom_less():
    """75 of 196 patches, as in the public code."""
    masked = block_masks(SEEDS, (14, 14), 0.3827, 16).sum(1)
    assert masked.max() == 75 and masked.min() > 55
    assert (masked == 75).float().mean() > 0.5


def test_a_mask_depends_on_its_own_seed_alone():
    together = block_masks(SEEDS[:20], (14, 14), 0.4, 16)
    for number in (0, 7, 19):
        assert torch.equal(block_masks(SEEDS[number : number + 1], (14, 14), 0.4, 16)[0], together[number])
    assert len({tuple(row) for row in together.tolist()}) == 20


def test_masks_are_blocks_and_not_single_patches():
    def lonely(masks):
        """Share of masked patches without a masked neighbour above, below, left or right."""
        padded = F.pad(masks.float(), (1, 1, 1, 1))
        near = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
        return ((near == 0) & masks).sum() / masks.sum()

    masks = block_masks(SEEDS, (14, 14), 0.4, 16).reshape(-1, 14, 14)
    scattered = torch.rand(500, 14, 14, generator=torch.Generator().manual_seed(0)) < 0.42
    assert lonely(masks) < 0.001 < 0.05 < lonely(scattered)


def test_a_mask_is_what_the_public_code_draws():
    """Oracle: the rule of BEiT's masking_generator.py with sets and single numbers."""
    for seed in SEEDS[:40]:
        masked, number, refused = set(), 0, 0
        while len(masked) < 75 and refused < 10:
            u = uniform(seed[None], 4, f"beit/{number}")[0].double().tolist()
            number += 1
            most = 75 - len(masked)
            size, aspect = 16 + u[0] * (most - 16), math.exp(math.log(0.3) + u[1] * (math.log(1 / 0.3) - math.log(0.3)))
            height, width = round(math.sqrt(size * aspect)), round(math.sqrt(size / aspect))
            top, start = int(u[2] * (14 - height + 1)), int(u[3] * (14 - width + 1))
            block = {i * 14 + j for i in range(top, top + height) for j in range(start, start + width)}
            if height < 14 and width < 14 and 0 < len(block - masked) <= most:
                masked |= block
                refused = 0
            else:
                refused += 1
        assert block_masks(seed[None], (14, 14), 0.3827, 16)[0].nonzero()[:, 0].tolist() == sorted(masked)


@pytest.mark.parametrize("grid", [(2, 2), (1, 5), (3, 2)])
def test_every_image_of_a_small_grid_has_a_masked_patch(grid):
    masked = block_masks(SEEDS, grid, 0.4, 1).sum(1)
    assert masked.min() >= 1 and masked.max() <= 0.4 * grid[0] * grid[1]


def test_every_patch_is_masked_about_as_often_as_its_mirror_image():
    rate = block_masks(torch.arange(4000), (14, 14), 0.4, 16).reshape(-1, 14, 14).float().mean(0)
    assert (rate - rate.flip(0)).abs().max() < 0.05 and (rate - rate.flip(1)).abs().max() < 0.05
    assert 0.03 < rate.min() < rate.max() < 0.8  # corners lie in few blocks


def test_a_block_larger_than_what_is_wanted_is_refused():
    with pytest.raises(ValueError, match=r"a block of 16 patches is more than 0.4 of 4 x 4"):
        block_masks(SEEDS, (4, 4), 0.4, 16)
    with pytest.raises(UsvitError, match=r"beit.min_block 16 is more than beit.mask 0.4 of the 16 patches"):
        beit(min_block=16)


@pytest.mark.parametrize("stem", STEMS)
def test_the_loss_is_the_masked_patches_cross_entropy(stem):
    task, rows = beit(tiny_vit(stem=stem)), batch()
    task.module.eval()
    images = Normalised()(rows["images"], rows["seeds"])
    mask = block_masks(rows["seeds"], (4, 4), 0.4, 2)
    words = task._tokenizer.codes(images)
    network, total = task.module.network, 0.0
    for image in range(4):
        patches = network.patch_embed(images[image : image + 1])
        for place in range(16):
            if mask[image, place]:
                patches[0, place] = task.module.mask_token[0, 0]
        tokens = network.norm(network.blocks(network._pos_embed(patches)))[0, 1:]
        for place in range(16):
            if mask[image, place]:
                logits = task.module.words(tokens[place]).tolist()
                total -= logits[words[image, place]] - math.log(sum(math.exp(value) for value in logits))
    assert task.loss(task.module, rows, 0).item() == pytest.approx(total, rel=1e-4)
    assert task.normalizer(rows, 0).item() == mask.sum()


@pytest.mark.parametrize("stem", STEMS)
def test_what_lies_under_the_mask_does_not_reach_the_network(stem):
    task, rows = beit(tiny_vit(stem=stem)), batch()
    module, images = task.module.eval(), Normalised()(rows["images"], rows["seeds"])
    mask = block_masks(rows["seeds"], (4, 4), 0.4, 2)
    places = mask.flatten().nonzero()[:, 0]
    pixels = mask.reshape(4, 1, 4, 4).repeat_interleave(8, 2).repeat_interleave(8, 3)
    other = torch.where(pixels, torch.randn_like(images), images)
    assert not torch.equal(other, images)
    torch.testing.assert_close(module(images, mask, places), module(other, mask, places))


def test_words_are_those_of_the_whole_image_as_the_tokenizer_wants_it():
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.4, 0.6)
    words, rows = tokenizer(mean=mean, std=std), batch()
    task = beit(words=words)
    given = task._words(Normalised()(rows["images"], rows["seeds"]))
    wanted = words[0].codes(words[1].normalised(rows["images"]))
    assert (given == wanted).float().mean() > 0.98  # one rounding may turn a tie
    assert given.shape == (4, 16)


def test_portions_do_not_change_the_gradient():
    whole, portions, rows = beit(), beit(), batch(6)
    (whole.loss(whole.module, rows, 0) / whole.normalizer(rows, 0)).backward()
    for start in (0, 2, 4):
        part = {key: value[start : start + 2] for key, value in rows.items()}
        (portions.loss(portions.module, part, 0) / portions.normalizer(rows, 0)).backward()
    for (name, one), other in zip(whole.module.named_parameters(), portions.module.parameters(), strict=True):
        assert (one.grad is None) == (not one.requires_grad), name
        if one.requires_grad:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


def test_the_tokenizer_is_not_saved_and_does_not_train():
    task = beit()
    assert not any("codebook" in name for name in task.module.state_dict())
    assert task.network(task.module) is task.module.network


@pytest.mark.slow
def test_the_loss_falls():
    task, rows = beit(), batch(8)
    optimizer = torch.optim.AdamW([one for one in task.module.parameters() if one.requires_grad], lr=3e-2)
    losses = []
    for step in range(25):
        optimizer.zero_grad()
        loss = task.loss(task.module, rows, step) / task.normalizer(rows, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_figures_are_sums_over_images_of_means_over_their_masked_patches():
    task, rows = beit(), batch()
    images = Normalised()(rows["images"], rows["seeds"])
    figures = task.evaluate(task.module.eval(), images, torch.zeros(4))
    mask, words = block_masks(torch.arange(4), (4, 4), 0.4, 2), task._tokenizer.codes(images)
    logits = task.module(images, mask, mask.flatten().nonzero()[:, 0])
    loss, hits, start = 0.0, 0.0, 0
    for image in range(4):
        count = int(mask[image].sum())
        mine, right = logits[start : start + count], words[image][mask[image]]
        loss, hits = loss + F.cross_entropy(mine, right).item(), hits + (mine.argmax(1) == right).float().mean().item()
        start += count
    assert figures["val_loss"].item() == pytest.approx(loss, rel=1e-5)
    assert figures["val_accuracy"].item() == pytest.approx(hits, abs=1e-5)


def test_a_tokenizer_of_other_patches_is_refused():
    with pytest.raises(UsvitError, match="has patches of 16 pixels"):
        beit(words=tokenizer(patch=16))


@pytest.mark.parametrize(("where", "says"), [("", "is not set"), ("runs/none", "the run runs/none does not exist")])
def test_a_missing_tokenizer_is_refused(where, says):
    with pytest.raises(UsvitError, match=says):
        make(plan(objective="beit", beit={"tokenizer": where}), tiny_vit())


@pytest.mark.parametrize("stem", ["conv_bn", "conv_ln", "local"])
def test_a_stem_that_mixes_patches_is_trained_with_a_note(stem, caplog):
    # Three things, Table 7, column "BeiT+FT": 83.04, 83.06 and 82.38 %.
    caplog.set_level("INFO")
    images, seeds = torch.randint(256, (4, 64, 64, 3), dtype=torch.uint8), torch.arange(4)
    task = beit(tiny_vit(stem=stem, patch=16, img_size=64, width=16), words=tokenizer(patch=16))
    assert "mixes neighbouring patches, and objective beit masks after it" in caplog.text
    task.loss(task.module.train(), {"images": images, "seeds": seeds}, 0).backward()
    stem_grads = [parameter.grad for parameter in task.module.network.patch_embed.parameters()]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in stem_grads)


@pytest.mark.parametrize("stem", ["linear_bn", "linear_gelu", "linear_bn_gelu"])
def test_a_linear_stem_with_layers_after_it_is_trained_without_a_note(stem, caplog):
    caplog.set_level("INFO")
    beit(tiny_vit(stem=stem))
    assert "mixes" not in caplog.text


def test_what_the_tokenizer_has_seen_the_network_has_seen(tmp_path):
    written(tmp_path / "words", seen_sha256={"train": ["ab" * 32], "val": [], "upstream": ["cd" * 32]})
    config = plan(objective="beit", beit={"tokenizer": str(tmp_path / "words"), "min_block": 2})
    task = make(config, tiny_vit())
    seen = write_seen(tmp_path, {"train": ["ef" * 32]}, None, *task.upstream_models).content()["seen_sha256"]
    assert seen == {"train": ["ef" * 32], "val": [], "upstream": ["ab" * 32, "cd" * 32]}


def test_masks_are_drawn_from_the_seeds_on_the_host_where_they_come_along():
    task, rows = beit(), batch()
    expected = task.loss(task.module.eval(), rows, 0)
    elsewhere = {**rows, "seeds": rows["seeds"].to("meta"), ON_HOST: rows["seeds"]}  # to read these would be an error
    torch.testing.assert_close(task.loss(task.module, elsewhere, 0), expected)


def test_the_loop_hands_each_portion_its_seeds_on_the_host():
    handed = []

    class Watched(Beit):
        def loss(self, module, portion, step):
            handed.append((portion["seeds"], portion[ON_HOST]))
            return super().loss(module, portion, step)

    config = plan(objective="beit", beit={"tokenizer": "runs/words", "min_block": 2})
    task, rows = Watched(config, tiny_vit(), tokenizer()), batch()
    fabric = Fabric(accelerator="cpu", devices=1)
    module, optimizer = fabric.setup(task.module, torch.optim.SGD(task.module.parameters(), lr=0.1))
    train = TrainConfig(batch_size=4, micro_batch=3, steps=1)
    training_step(module, fabric, optimizer, task, rows, 0, 0.1, train, OptimConfig())
    assert [len(seeds) for seeds, _ in handed] == [3, 1] and all(torch.equal(*pair) for pair in handed)
    assert torch.equal(torch.cat([host for _, host in handed]), rows["seeds"])
