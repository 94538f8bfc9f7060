import pytest
import timm
import torch

from usvit.models.architectures.attention_pool import AttentionPool, ClassHead, spread_query

from .networks import images, scramble, small


def pool_of(**options):
    torch.manual_seed(0)
    return scramble(AttentionPool(12, layer_scale=0.5, **options).eval())


@pytest.mark.parametrize(("n_queries", "heads"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_the_pooling_is_its_equation(n_queries, heads):
    pool = pool_of(n_queries=n_queries, heads=heads)
    patches = torch.randn(2, 7, 12)
    weights, out = torch.zeros(2, heads, n_queries, 7), torch.zeros(2, n_queries, 12)
    size = 12 // heads
    for image in range(2):
        for which in range(n_queries):
            query = pool.q(pool.norm1(pool.queries[0, which]))
            mixed = []
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                keys, values = pool.k(pool.norm1(patches[image])), pool.v(pool.norm1(patches[image]))
                weights[image, head, which] = torch.softmax(keys[:, part] @ query[part] / size**0.5, 0)
                mixed.append(weights[image, head, which] @ values[:, part])
            token = pool.queries[0, which] + pool.ls1.gamma * pool.proj(torch.cat(mixed))
            out[image, which] = token + pool.ls2.gamma * pool.mlp(pool.norm2(token))
    torch.testing.assert_close(pool(patches), out)
    torch.testing.assert_close(pool.attention(patches), weights)
    expected = weights[:, :, 0] if n_queries == 1 else weights.mean(1)
    torch.testing.assert_close(pool.maps(patches), expected)


def test_a_patch_that_is_not_looked_at_does_not_count():
    pool = pool_of()
    patches = torch.randn(1, 6, 12)
    pool.k.weight.data.zero_()  # all keys the same: each patch has a sixth
    assert pool.maps(patches).flatten().tolist() == pytest.approx([1 / 6] * 6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["patchconvnet", "patchconvnet-class", "resnet50_attn", "resnet50_attn-class"])
def test_the_pooling_leaves_the_patches_and_shows_where_it_looks(kind):
    model = scramble(small(kind))
    features = model.forward_features(images())
    before = features.clone()
    model.forward_head(features)
    assert features.equal(before)
    maps = model.attention_maps(images())
    side = 64 // (16 if "patch" in kind else 32)
    assert maps.shape == (2, 5 if "class" in kind else 1, side, side)
    torch.testing.assert_close(maps.sum((2, 3)), torch.ones(maps.shape[:2]))


def test_maps_lie_as_the_image_does():
    model = scramble(small("patchconvnet"))
    for bias in (model.attn_pool.k.bias, model.attn_pool.q.bias):
        torch.nn.init.zeros_(bias)
    features = torch.zeros(1, 32, 3, 5)
    features[0, :, 1, 4] = torch.randn(32)
    weights = model.attn_pool.maps(features.flatten(2).transpose(1, 2)).view(3, 5)
    odd = (weights - weights[0, 0]).abs() > 1e-6
    assert odd.nonzero().tolist() == [[1, 4]]


@pytest.mark.parametrize("kind", ["patchconvnet-class", "resnet50_attn-class"])
def test_each_class_reads_its_own_query(kind):
    model = scramble(small(kind))
    before = model(images())
    model.attn_pool.queries.data[0, 2] += torch.linspace(-1, 1, model.num_features)
    changed = (model(images()) - before).abs().amax(0) > 1e-6
    assert changed.tolist() == [False, False, True, False, False]


def test_a_head_of_classes_is_a_row_of_a_linear_one():
    head = ClassHead(4, 3)
    x = torch.randn(2, 3, 4)
    linear = torch.nn.functional.linear(x, head.weight, head.bias)  # (2, 3, 3): each query through each class
    torch.testing.assert_close(head(x), linear.diagonal(dim1=1, dim2=2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["patchconvnet", "resnet50_attn"])
def test_a_query_for_each_class_begins_as_the_single_one(kind):
    # "We typically do that in a fine-tuning stage" (thesis, section 5.2.1).
    one, each = scramble(small(kind)), small(f"{kind}-class")
    each.load_state_dict(spread_query(one.state_dict(), each))
    torch.testing.assert_close(each(images()), one(images()), rtol=1e-4, atol=1e-4)
    each.reset_classifier(2)
    torch.testing.assert_close(each.attn_pool.queries, one.attn_pool.queries.repeat(1, 2, 1))


def test_weights_are_kept_where_queries_agree():
    model = small("patchconvnet-class")
    state = model.state_dict()
    assert spread_query(state, model)["attn_pool.queries"] is state["attn_pool.queries"]


@pytest.mark.parametrize(
    ("architecture", "options", "words"),
    [
        ("usvit_patchconvnet", {"width": 36}, "multiple of 8, not 36"),
        ("usvit_patchconvnet", {"pool_heads": 5, "width": 32}, "32 is not divisible by the 5 heads"),
        ("usvit_patchconvnet", {"norm": "gn"}, "must be one of ln, bn"),
        ("usvit_patchconvnet", {"pool": "max"}, "must be attention or avg"),
        ("usvit_patchconvnet", {"pool": "avg", "queries": "class"}, "requires pool to be attention"),
        ("usvit_patchconvnet", {"queries": "all"}, "must be one or class"),
        ("usvit_patchconvnet", {"depth": 0}, "depth is 0"),
        ("usvit_resnet50_attn", {"queries": "all"}, "must be one or class"),
        ("usvit_resnet50_attn", {"pool_heads": 3}, "2048 is not divisible by the 3 heads"),
    ],
)
def test_impossible_options_say_why(architecture, options, words):
    with torch.device("meta"), pytest.raises(ValueError, match=words):
        timm.create_model(architecture, **{"depth": 1, **options} if "patch" in architecture else options)


def test_average_pooling_has_no_maps():
    with pytest.raises(ValueError, match="no attention maps"):
        small("patchconvnet-avg").attention_maps(images())


@pytest.mark.parametrize("kind", ["patchconvnet", "resnet50_attn"])
def test_the_pooling_cannot_be_exchanged_later(kind):
    with pytest.raises(ValueError, match="max"):
        small(kind).reset_classifier(2, "max")
