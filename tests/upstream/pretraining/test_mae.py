import copy
import math

import pytest
import timm
import torch
from torch.nn import functional as F

from tests.models.authors_networks import VIT, load
from tests.oracles import authors
from tests.upstream.pretraining.toy import STEMS, batch, plan, tiny_vit
from usvit.errors import UsvitError
from usvit.models.architectures.positions import sincos_2d
from usvit.models.weights import Checkpoint
from usvit.training.parameter_groups import decayed
from usvit.upstream.config.pretrain import MaeConfig
from usvit.upstream.pretraining.mae import MaskedAutoencoder, make, reconstruction_loss, split, visible_patches
from usvit.upstream.pretraining.patches import Tokens, patchify

SMALL = {"decoder_width": 24, "decoder_depth": 2, "decoder_heads": 2}


def tiny_mae(network=None, **mae):
    return make(plan(objective="mae", mae=SMALL | mae), network or tiny_vit())


def scattered(task):
    """New weights everywhere in the decoder: zero biases would hide errors."""
    for parameter in task.module.decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    return task


def test_the_target_is_each_patchs_pixels_by_their_own_mean_and_unbiased_variance():
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    images[0, :, :4, :4] = 0.5  # a patch of one colour: its variance is zero
    masked = torch.tensor([[0, 3], [1, 2]])
    predicted = torch.randn(2, 2, 48, generator=torch.Generator().manual_seed(2))
    got = reconstruction_loss(predicted, images, masked, 4, normalise=True)
    for image in range(2):
        total = 0.0
        for number, place in enumerate(masked[image].tolist()):
            row, column = divmod(place, 2)
            pixels = [
                images[image, channel, 4 * row + i, 4 * column + j].item()
                for i in range(4)
                for j in range(4)
                for channel in range(3)
            ]
            mean = sum(pixels) / 48
            variance = sum((pixel - mean) ** 2 for pixel in pixels) / 47
            errors = [
                (predicted[image, number, k].item() - (pixel - mean) / math.sqrt(variance + 1e-6)) ** 2
                for k, pixel in enumerate(pixels)
            ]
            total += sum(errors) / 48
        assert got[image].item() == pytest.approx(total / 2, rel=1e-5)


def test_the_target_may_be_the_pixels_as_they_are():
    images = torch.randn(1, 3, 8, 8)
    masked = torch.tensor([[1]])
    assert reconstruction_loss(patchify(images, 4)[:, 1:2], images, masked, 4, normalise=False).item() == 0


def reference(task, images, visible) -> float:
    """The loss of one image, by another road: every patch is predicted, a mask picks, sums over explicit heads."""
    state = task.module.state_dict()
    mask = torch.ones(16)
    mask[visible] = 0

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt() * state[f"{name}.weight"]
            + state[f"{name}.bias"]
        )

    def linear(x, name):
        return torch.einsum("td,ed->te", x, state[f"{name}.weight"]) + state[f"{name}.bias"]

    def block(x, name, heads):
        qkv = linear(norm(x, f"{name}.norm1"), f"{name}.attn.qkv")
        width = x.shape[1]
        depth = width // heads
        out = []
        for head in range(heads):
            query, key, value = (
                qkv[:, part * width + head * depth : part * width + (head + 1) * depth] for part in range(3)
            )
            scores = torch.stack([torch.stack([q @ k for k in key]) for q in query]) / math.sqrt(depth)
            weights = scores.exp() / scores.exp().sum(1, keepdim=True)
            out.append(weights @ value)
        x = x + linear(torch.cat(out, 1), f"{name}.attn.proj")
        hidden = linear(norm(x, f"{name}.norm2"), f"{name}.mlp.fc1")
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        return x + linear(hidden, f"{name}.mlp.fc2")

    kernel, bias = state["network.patch_embed.proj.weight"], state["network.patch_embed.proj.bias"]
    position = state["network.pos_embed"][0]
    tokens = [state["network.cls_token"][0, 0] + position[0]]
    for place in visible:
        row, column = divmod(place, 4)
        patch = images[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        tokens.append((kernel * patch).sum((1, 2, 3)) + bias + position[1 + place])
    x = torch.stack(tokens)
    for layer in range(2):
        x = block(x, f"network.blocks.{layer}", 2)
    x = linear(norm(x, "network.norm"), "decoder.embed")
    decoded = state["decoder.mask_token"][0].repeat(16, 1)
    for number, place in enumerate(visible):
        decoded[place] = x[1 + number]
    x = torch.cat([x[:1], decoded + sincos_2d((4, 4), 24)[0]])
    for layer in range(2):
        x = block(x, f"decoder.blocks.{layer}", 2)
    predicted = linear(norm(x, "decoder.norm"), "decoder.predict")[1:]
    target = torch.einsum("crpsq->rspqc", images.reshape(3, 4, 8, 4, 8)).reshape(16, 192)
    target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6) ** 0.5
    error = ((predicted - target) ** 2).mean(-1)
    return float((error * mask).sum() / mask.sum())


def test_the_loss_is_that_of_an_independent_forward_pass():
    task, given = scattered(tiny_mae()), batch(2)
    visible, _ = split(given["seeds"], 16, 4)
    images = plan().inputs(given["images"], given["seeds"])
    with torch.no_grad():
        wanted = sum(reference(task, images[i], visible[i].tolist()) for i in range(2))
        assert task.loss(task.module, given, step=0).item() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("stem", ["linear", "hmlp_ln"])
def test_portions_and_the_order_of_examples_change_no_gradient(stem: str):
    gradients = []
    for portions in ([[0, 1, 2, 3]], [[3], [1, 0], [2]]):
        task, given = tiny_mae(tiny_vit(stem=stem)), batch()
        for rows in portions:
            portion = {key: value[rows] for key, value in given.items()}
            (task.loss(task.module, portion, 0) / task.normalizer(given, 0)).backward()
        gradients.append([one.grad for one in task.module.parameters() if one.requires_grad])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("pool", ["token", "avg", "map"])
def test_gradient_reaches_every_parameter_that_trains_and_the_head_does_not(stem: str, pool: str):
    task = tiny_mae(tiny_vit(stem=stem, pool=pool))
    task.loss(task.module, batch(), 0).backward()
    without = {name for name, one in task.module.named_parameters() if one.grad is None}
    frozen = {name for name, one in task.module.named_parameters() if not one.requires_grad}
    assert without == frozen
    assert {name.split(".")[1] for name in frozen} == ({"head", "attn_pool"} if pool == "map" else {"head"})


def test_the_pixels_of_masked_patches_are_targets_and_never_inputs():
    task, given = scattered(tiny_mae()), batch(1)
    visible, masked = split(given["seeds"], 16, 4)
    images = plan().inputs(given["images"], given["seeds"])
    row, column = divmod(int(masked[0, 3]), 4)
    other = images.clone()
    other[:, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = torch.randn(1, 3, 8, 8)
    module = task.module.eval()
    with torch.no_grad():
        assert torch.allclose(module(images, visible, masked), module(other, visible, masked), atol=1e-6)
        shown = images.clone()
        row, column = divmod(int(visible[0, 0]), 4)
        shown[:, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = torch.randn(1, 3, 8, 8)
        assert not torch.allclose(module(images, visible, masked), module(shown, visible, masked), atol=1e-3)


def test_every_patch_is_masked_three_times_in_four_and_no_two_images_alike():
    visible, masked = split(torch.arange(3000), 196, 49)
    assert visible.shape == (3000, 49) and masked.shape == (3000, 147)
    assert torch.equal(torch.cat([visible, masked], 1).sort(1).values, torch.arange(196).expand(3000, -1))
    assert (visible.diff(dim=1) > 0).all() and (masked.diff(dim=1) > 0).all()
    share = torch.bincount(visible.flatten(), minlength=196) / 3000
    assert share.mean() == pytest.approx(0.25) and share.min() > 0.21 and share.max() < 0.29  # 5 standard errors
    assert len({tuple(row) for row in visible.tolist()}) == 3000


@pytest.mark.parametrize(("count", "mask", "visible"), [(196, 0.75, 49), (256, 0.75, 64), (10, 0.9, 1), (196, 0.6, 78)])
def test_visible_patches_are_rounded_down_as_the_authors_do(count: int, mask: float, visible: int):
    assert visible_patches(count, mask) == visible


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"mask": 0.99}, "mae.mask 0.99 leaves 0 of 16 patches visible"),
        ({"mask": 1e-12}, "leaves 16 of 16"),
        ({"decoder_width": 30}, "mae.decoder_width is 30, .* multiple of 4"),
        ({"decoder_heads": 5}, "mae.decoder_width 24 is not a multiple of mae.decoder_heads 5"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(config, said: str):
    with pytest.raises(UsvitError, match=said):
        tiny_mae(**config)


def test_a_stem_that_leaks_and_positions_that_need_every_token_are_refused():
    with pytest.raises(UsvitError, match="objective mae masks patches, and the stem ConvStem"):
        tiny_mae(tiny_vit(stem="conv_bn", patch=16, img_size=64))
    with pytest.raises(UsvitError, match="objective mae drops masked tokens"):
        tiny_mae(tiny_vit(position="relative"))


@pytest.mark.parametrize(
    ("architecture", "count"), [("vit_base_patch16_224", 111_907_840), ("vit_large_patch16_224", 329_541_888)]
)
def test_the_whole_has_the_parameters_of_the_authors_models(architecture: str, count: int):
    """``mae_vit_*_patch16_dec512d8b``; its tables of positions, (197, D) and (197, 512), are parameters held fixed."""
    with torch.device("meta"):
        task = make(plan(objective="mae"), timm.create_model(architecture, num_classes=0))
    assert sum(one.numel() for one in task.module.parameters()) + 197 * 512 == count


def test_the_decoder_has_the_parameters_of_the_authors_formula():
    task = tiny_mae(decoder_width=512, decoder_depth=8, decoder_heads=16)
    count = sum(one.numel() for one in task.module.decoder.parameters())
    width, pixels = 16, 192
    wanted = (width * 512 + 512) + 512 + 8 * (12 * 512**2 + 13 * 512) + 2 * 512 + (512 * pixels + pixels)
    assert count == wanted


def test_the_kept_network_is_the_encoder_and_loads_where_a_run_starts_from_it():
    task = tiny_mae()
    copied = copy.deepcopy(task.module)  # as a moving average is
    kept = task.network(copied)
    assert kept is copied.network and kept is not task.module.network
    fresh = tiny_vit(num_classes=7)
    state = {name: value for name, value in kept.state_dict().items() if not name.startswith("head.")}
    missing, unexpected = fresh.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) == {"head.weight", "head.bias"}


def test_making_it_leaves_the_network_and_the_global_generator_as_they_were():
    network, before = tiny_vit(), torch.get_rng_state()
    weights = copy.deepcopy(network.state_dict())
    first, again = tiny_mae(network), tiny_mae()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in weights.items())
    for one, other in zip(first.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_validation_masks_the_same_patches_every_time():
    task = tiny_mae()
    images, targets = torch.randn(3, 3, 32, 32), torch.full((3,), -1)
    with torch.no_grad():
        first = task.evaluate(task.module.eval(), images, targets)
        assert first == task.evaluate(task.module, images, targets)
        visible, masked = split(torch.arange(3), 16, 4)
        predicted = task.module(images, visible, masked)
    assert first["val_loss"] == reconstruction_loss(predicted, images, masked, 8, normalise=True).sum()


@pytest.mark.slow
def test_a_few_steps_make_the_loss_smaller_in_either_precision():
    for dtype in (torch.float32, torch.bfloat16):
        task, given = tiny_mae(), batch(8, seed=3)
        optimizer = torch.optim.AdamW([one for one in task.module.parameters() if one.requires_grad], lr=3e-3)
        losses = []
        for step in range(25):
            with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
                loss = task.loss(task.module, given, step) / 8
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.9 * losses[0] and all(map(math.isfinite, losses))


def test_tokens_and_positions_are_decayed_only_if_asked_for():
    """main_pretrain.py of MAE's code decays all that has two axes or more, and so the class and the mask token."""
    module = tiny_mae().module
    embeddings = {"network.pos_embed", "network.cls_token", "decoder.mask_token"}
    assert decayed(module, embeddings=True) - decayed(module) == embeddings


def test_the_published_decoder_is_the_default():
    config = MaeConfig()
    assert (config.mask, config.decoder_width, config.decoder_depth, config.decoder_heads) == (0.75, 512, 8, 16)
    assert config.norm_pixels


def test_a_constant_patch_gives_no_infinite_target():
    images = torch.zeros(1, 3, 32, 32)
    _, masked = split(torch.tensor([1]), 16, 4)
    loss = reconstruction_loss(torch.zeros(1, 12, 192), images, masked, 8, normalise=True)
    assert F.mse_loss(loss, torch.zeros(1)) == 0


DECODER = {
    "mask_token": "mask_token",
    "decoder_embed.": "embed.",
    "decoder_blocks.": "blocks.",
    "decoder_norm.": "norm.",
    "decoder_pred.": "predict.",
}


def authors_mae():
    """Our network and decoder with the weights of models_mae.py, whose positions are fixed."""
    state = authors.state_of("mae")
    fixed = {"pos_embed": F.pad(sincos_2d((4, 4), 32), (0, 0, 1, 0))}
    fixed["decoder_pos_embed"] = F.pad(sincos_2d((4, 4), 24), (0, 0, 1, 0))
    network, report = load("mae", VIT, Checkpoint(state | fixed))
    config = MaeConfig(decoder_width=24, decoder_depth=1, decoder_heads=2)
    module = MaskedAutoencoder(network, Tokens.of(network, "mae", subsets=True), config)
    decoder = {}
    for key in [key for key, _ in report.skipped if key in state]:
        (theirs,) = (name for name in DECODER if key.startswith(name))
        decoder[key.replace(theirs, DECODER[theirs], 1)] = state[key]
    module.decoder.load_state_dict(decoder)
    return module.double().eval()


def test_prediction_and_loss_are_those_of_the_authors_code():
    module, stored = authors_mae(), authors.network("mae")
    mask = torch.tensor(stored["mask"])
    visible, masked = ((mask == kept).nonzero()[:, 1].view(2, -1) for kept in (0, 1))
    assert visible.shape == (2, 4)
    with torch.no_grad():
        predicted = module(authors.images(32), visible, masked)
    theirs = torch.tensor(stored["predicted"]).double()  # of every third patch and every 24th pixel
    seen = 0
    for image in range(2):
        for number, place in enumerate(masked[image].tolist()):
            if place % 3 == 0:
                seen += 1
                torch.testing.assert_close(
                    predicted[image, number, ::24], theirs[image, place // 3], rtol=1e-5, atol=1e-6
                )
    assert seen >= 6
    for kind, normalise in (("pixels", False), ("normalised", True)):
        loss = reconstruction_loss(predicted, authors.images(32), masked, 8, normalise=normalise).mean()
        assert loss.item() == pytest.approx(stored["loss"][kind], rel=1e-5)


@pytest.mark.parametrize("case", authors.values("mae_kept"))
def test_as_many_patches_stay_as_in_the_authors_random_masking(case):
    count, mask = case.split()
    assert visible_patches(int(count), float(mask)) == authors.values("mae_kept")[case]


def test_the_same_parameters_are_decayed_as_by_the_function_that_the_authors_call():
    """main_pretrain.py: timm's, without names that have none. Positions are fixed there, and a table to learn here."""
    module = authors_mae()
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    theirs = set()
    for key in authors.network("mae")["decayed"]:
        part = next((name for name in DECODER if key.startswith(name)), None)
        theirs.add(f"decoder.{key.replace(part, DECODER[part], 1)}" if part else f"network.{key}")
    assert decayed(module, embeddings=True) & trained == theirs | {"network.pos_embed"}
