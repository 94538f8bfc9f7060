import torch

from .networks import images, scramble, tiny_vit


def axial(**options):
    return scramble(tiny_vit(attention="axial", pool="avg", img_size=(48, 80), **options))


def changed_by_one_patch(run, row, column):
    """Which patches of a grid of 3 x 5 answer to a change of one."""
    tokens = torch.randn(1, 15, 32, generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[0, row * 5 + column] += torch.randn(32, generator=torch.Generator().manual_seed(1))
    return ((run(other) - run(tokens)).abs().sum(-1) > 1e-5).view(3, 5)


def test_rows_attend_along_rows_and_columns_along_columns():
    block = axial().blocks[0]
    row, column = torch.zeros(3, 5, dtype=torch.bool), torch.zeros(3, 5, dtype=torch.bool)
    row[1], column[:, 3] = True, True
    assert changed_by_one_patch(block.row, 1, 3).equal(row)
    assert changed_by_one_patch(block.column, 1, 3).equal(column)
    assert changed_by_one_patch(block, 1, 3).all()


def test_one_row_is_a_plain_transformer_along_it():
    model = axial()
    plain = tiny_vit(pool="avg", img_size=(16, 80))
    block = plain.blocks[0]
    block.load_state_dict(model.blocks[0].row.state_dict())
    tokens = torch.randn(2, 15, 32)
    rows = torch.cat([block(tokens[:, start : start + 5]) for start in (0, 5, 10)], dim=1)
    torch.testing.assert_close(model.blocks[0].row(tokens), rows)


def test_stochastic_depth_drops_a_block_for_a_whole_image():
    torch.manual_seed(0)
    block = axial(depth=3, drop_path_rate=0.9).blocks[-1].row.train()
    block.mlp = torch.nn.Sequential(torch.nn.Identity(), Zero())
    tokens = torch.randn(64, 15, 32)
    moved = (block(tokens) - tokens).abs().sum(-1) > 1e-6
    assert 0 < moved[:, 0].sum() < 32
    assert moved.all(dim=1).equal(moved.any(dim=1))


class Zero(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


def test_a_transposed_image_is_the_same_to_a_network_with_its_axes_exchanged():
    model = scramble(tiny_vit(attention="axial", pool="avg", position="none", depth=1))
    other = tiny_vit(attention="axial", pool="avg", position="none", depth=1)
    other.load_state_dict(model.state_dict())
    other.patch_embed.proj.weight.data = model.patch_embed.proj.weight.data.transpose(2, 3)
    for block, swapped in zip(model.blocks, other.blocks, strict=True):
        swapped.row.attn.axis, swapped.column.attn.axis = block.column.attn.axis, block.row.attn.axis
    torch.testing.assert_close(other(images().transpose(2, 3)), model(images()))
