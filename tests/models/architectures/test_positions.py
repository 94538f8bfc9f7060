import math

import numpy as np
import pytest
import torch

from tests.oracles import authors
from usvit.models.architectures.positions import Learned2d, RelativeAttention, SinCos2d, sincos_2d

from .networks import images, scramble, tiny_vit

GRID = (3, 5)


def shuffled(batch, patch=16):
    """The patches of each image in another order."""
    rows = batch.unflatten(2, (-1, patch)).unflatten(4, (-1, patch)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    rows = rows[:, torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(1))]
    side = batch.shape[2] // patch
    return rows.unflatten(1, (side, side)).permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


@pytest.mark.parametrize(
    ("position", "at"),
    [("learned", "stem"), ("learned", "layers"), ("learned", "shared"), ("learned_2d", "stem"),
     ("learned_2d", "shared"), ("sincos_2d", "stem"), ("sincos_2d", "shared"), ("relative", "stem")],
)  # fmt: skip
def test_only_without_positions_an_image_is_a_bag_of_patches(position, at):
    # "Providing no positional information: Considering the inputs as a bag of patches" (D.4).
    bag = scramble(tiny_vit(position="none"))
    torch.testing.assert_close(bag(shuffled(images())), bag(images()), rtol=1e-4, atol=1e-4)
    model = scramble(tiny_vit(position=position, position_at=at))
    assert (model(shuffled(images())) - model(images())).abs().max() > 1e-2


def test_a_patch_has_the_embeddings_of_its_column_and_its_row():
    positions = Learned2d(GRID, 8, n_prefix=1)
    table = positions()
    assert table.shape == (1, 1 + 15, 8)
    for row in range(3):
        for column in range(5):
            expected = torch.cat([positions.x_table[column], positions.y_table[row]])
            assert table[0, 1 + row * 5 + column].equal(expected)
    assert sum(parameter.numel() for parameter in positions.parameters()) == (3 + 5) * 4 + 8


def test_sines_and_cosines_are_those_of_mae():
    table = SinCos2d(GRID, 16, n_prefix=1)()[0].numpy()
    assert (table[0] == 0).all()
    for row in range(3):
        for column in range(5):
            rates = [10_000 ** -(i / 4) for i in range(4)]  # MAE and MoCo v3: by D/4
            expected = [f(place * rate) for place in (column, row) for f in (math.sin, math.cos) for rate in rates]
            np.testing.assert_allclose(table[1 + row * 5 + column], expected, atol=1e-6)


def test_fixed_positions_learn_nothing_and_lie_in_no_file():
    model = tiny_vit(position="sincos_2d")
    bare = tiny_vit(position="none")
    assert set(model.state_dict()) == set(bare.state_dict())


def test_relative_attention_is_its_equation():
    torch.manual_seed(0)
    layer = RelativeAttention(12, 3, n_patches=5)
    torch.nn.init.normal_(layer.relative)
    x = torch.randn(2, 1 + 5, 12)
    query, key, value = (part.view(2, 6, 3, 4) for part in layer.qkv(x).split(12, dim=-1))
    out = torch.zeros(2, 6, 3, 4)
    for image in range(2):
        for head in range(3):
            for i in range(6):
                logits = []
                for j in range(6):
                    logit = query[image, i, head] @ key[image, j, head]
                    if i and j:  # both are patches; the offset counts from -4 to 4
                        logit = logit + query[image, i, head] @ layer.relative[(i - j) + 4]
                    logits.append(logit / 2)  # sqrt(4)
                out[image, i, head] = torch.softmax(torch.stack(logits), 0) @ value[image, :, head]
    torch.testing.assert_close(layer(x), layer.proj(out.flatten(2)))


def test_relative_positions_of_zero_are_none():
    model = tiny_vit(position="relative")
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.relative)
    bare = tiny_vit(position="none")
    bare.load_state_dict({key: value for key, value in model.state_dict().items() if "relative" not in key})
    torch.testing.assert_close(model(images()), bare(images()))


@pytest.mark.parametrize("at", ["layers", "shared"])
def test_positions_are_added_before_every_layer(at):
    model = scramble(tiny_vit(position_at=at))
    assert len(model.pos_embeds) == (2 if at == "layers" else 1)
    bare = tiny_vit(position="none")
    bare.load_state_dict({key: value for key, value in model.state_dict().items() if "pos_embeds" not in key})
    x = bare._pos_embed(bare.patch_embed(images()))
    for index, block in enumerate(bare.blocks):
        x = block(x + model.pos_embeds[index if at == "layers" else 0]())
    torch.testing.assert_close(bare.forward_head(bare.norm(x)), model(images()))


@pytest.mark.parametrize("position", ["learned", "learned_2d"])
def test_a_class_token_without_position_gets_zero(position):
    kwargs = {"position": position, "position_at": "shared"}
    assert tiny_vit(**kwargs, class_position=False).pos_embeds[0]()[0, 0].abs().max() == 0
    assert tiny_vit(**kwargs).pos_embeds[0]()[0, 0].abs().max() > 0


@pytest.mark.parametrize("position", ["learned", "learned_2d", "sincos_2d"])
def test_a_larger_grid_keeps_the_embeddings_norm_and_a_grid_back_nearly_themselves(position):
    model = tiny_vit(position=position, position_at="shared", img_size=(128, 64))
    positions = model.pos_embeds[0]
    if position != "sincos_2d":  # smooth ones, as training makes them; bilinear resizing of noise loses norm
        for name, table in positions.named_parameters():
            if name != "prefix":
                smooth = torch.linspace(0, 3, table.shape[-2])[:, None] + torch.linspace(0, 6, table.shape[-1])
                table.data.copy_(smooth.sin())
    before = positions()
    model.set_input_size(img_size=(256, 128))
    assert positions.grid == (16, 8)
    assert positions().shape == (1, 1 + 128, 32)
    assert positions()[:, 1:].norm(dim=-1).mean().item() == pytest.approx(
        before[:, 1:].norm(dim=-1).mean().item(), rel=0.05
    )
    model.set_input_size(img_size=(128, 64))
    assert (positions() - before).abs().max() < (1e-6 if position == "sincos_2d" else 0.35)
    assert positions()[:, 0].equal(before[:, 0])


def test_fixed_positions_are_those_of_mae_and_big_vision_s_have_other_frequencies():
    """docs/reference/recipes.md: i / (D/4) in MAE's code, i / (D/4 - 1) in big_vision's; the columns have one order."""
    mae = torch.tensor(authors.values("mae_positions"))
    torch.testing.assert_close(sincos_2d((3, 3), 16)[0], mae, rtol=0, atol=1e-6)
    big_vision, ours = torch.tensor(authors.values("big_vision_positions")), sincos_2d((4, 4), 32)[0]
    assert (ours - big_vision).abs().max() > 0.1
    waves = 10_000.0 ** (-torch.arange(8) / 7)
    row, column = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
    x, y = column.reshape(-1, 1) * waves, row.reshape(-1, 1) * waves
    torch.testing.assert_close(torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], 1), big_vision, rtol=0, atol=1e-6)
