import pytest
import torch

from usvit.models.architectures.stems import ConvStem, HMLPStem, LinearStem, LocalStem

from .networks import images, scramble


def stem_of(kind, norm, patch=16, width=32):
    torch.manual_seed(0)
    return scramble(kind(img_size=64, patch_size=patch, embed_dim=width, norm=norm).eval())


def mask_of(patch=16):
    keep = torch.zeros(4, 4, dtype=torch.bool)
    keep[0, 1] = keep[2, 2] = keep[2, 3] = keep[3, 0] = True
    return keep


@pytest.mark.parametrize("norm", ["bn", "ln"])
def test_hmlp_commutes_with_masking_and_convolutions_do_not(norm):
    keep = mask_of()
    pixels = keep.repeat_interleave(16, 0).repeat_interleave(16, 1)
    for kind, commutes in ((HMLPStem, True), (ConvStem, False)):
        stem = stem_of(kind, norm)
        before = stem(images() * pixels)[:, keep.flatten()]
        after = stem(images())[:, keep.flatten()]
        assert torch.allclose(before, after, atol=1e-6) == commutes


@pytest.mark.parametrize("patch", [8, 16, 32])
def test_each_patch_of_the_hmlp_stem_sees_its_own_pixels_and_all_of_them(patch):
    stem = stem_of(HMLPStem, "ln", patch)
    picture = images(1).requires_grad_()
    stem(picture)[0, 1].sum().backward()  # the second patch of the first row
    seen = picture.grad.abs().sum((0, 1)) > 0
    expected = torch.zeros(64, 64, dtype=torch.bool)
    expected[:patch, patch : 2 * patch] = True
    assert seen.equal(expected)


@pytest.mark.parametrize(("kind", "kernels"), [(HMLPStem, [4, 2, 2]), (ConvStem, [3, 3, 3, 3])])
@pytest.mark.parametrize("norm", ["bn", "ln"])
def test_stems_have_the_layers_of_the_paper(kind, kernels, norm):
    layers = list(stem_of(kind, norm, width=64).proj)
    assert [layer.kernel_size[0] for layer in layers if isinstance(layer, torch.nn.Conv2d)] == kernels
    names = [type(layer).__name__ for layer in layers]
    one = ["Conv2d", {"bn": "BatchNorm2d", "ln": "LayerNorm2d"}[norm], "GELU"]
    assert names == (one * len(kernels))[:-1]  # the last projection is linear


@pytest.mark.parametrize(
    ("norm", "gelu", "names"),
    [("bn", False, ["BatchNorm2d"]), (None, True, ["GELU"]), ("bn", True, ["BatchNorm2d", "GELU"])],
)
def test_linear_stems_are_one_projection_of_each_patch_and_what_follows_it(norm, gelu, names):
    stem = scramble(LinearStem(img_size=64, patch_size=16, embed_dim=8, norm=norm, gelu=gelu).eval())
    assert [type(layer).__name__ for layer in stem.proj] == ["Conv2d", *names]
    picture = images(1)
    patch = picture[0, :, 16:32, 48:].flatten() @ stem.proj[0].weight.flatten(1).T + stem.proj[0].bias
    for layer in list(stem.proj)[1:]:
        patch = layer(patch[None, :, None, None]).flatten()
    assert torch.allclose(stem(picture)[0, 1 * 4 + 3], patch, atol=1e-4)


def test_the_local_stem_attends_within_a_patch_and_its_convolution_reaches_two_pixels_further():
    torch.manual_seed(0)
    stem = scramble(LocalStem(img_size=64, patch_size=16, embed_dim=32, depth=2).eval())
    picture = images(1).requires_grad_()
    stem(picture)[0, 1 * 4 + 2].sum().backward()  # the patch of rows 16 to 31 and columns 32 to 47
    seen = picture.grad.abs().sum((0, 1)) > 0
    rows, columns = seen.any(1).nonzero().flatten(), seen.any(0).nonzero().flatten()
    # A 7 x 7 kernel at stride 4 sees 3 pixels before its subpatch and, of the last one, 3 + 28 - 31 = 0 to 31 + 2.
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (13, 31, 29, 47)


def test_tokens_come_in_raster_order():
    picture = torch.zeros(1, 3, 64, 64)
    picture[:, :, 16:32, 48:] = 1  # row 1, column 3
    stem = stem_of(HMLPStem, "ln")
    changed = (stem(picture) - stem(torch.zeros(1, 3, 64, 64))).abs().sum(-1)[0] > 1e-6
    assert changed.nonzero().flatten().tolist() == [1 * 4 + 3]
