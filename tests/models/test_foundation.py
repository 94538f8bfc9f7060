"""Foundation models of the hub: entries against timm's registry and data cards, files against reference networks."""

import dataclasses
import math
import os

import numpy as np
import pytest
import timm
import torch

from tests.conftest import REPOSITORY
from tests.models import foundation_layouts as layouts
from usvit.data.datasets import card_names
from usvit.errors import UsvitError
from usvit.models import ZOO, build_model, foundation_models, input_statistics, resolve_weights
from usvit.models.spec import ModelSpec
from usvit.models.zoo import find_model
from usvit.models.zoo.common import SOURCES

WIDTH, DEPTH = 192, 2
WITH_NETWORK = [name for name, entry in foundation_models().items() if entry.network is not None]


def random_tensors(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Random tensors in which no part is zero or one, of a size at which all layers matter."""
    generator = torch.Generator().manual_seed(11)
    found = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator)
        fan = max(1, math.prod(shape[1:])) if len(shape) > 1 else 4
        found[name] = values / math.sqrt(fan) + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
    return found


def block_shapes(name: str, width: int = WIDTH, **own: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    shapes = {f"{name}.norm{i}.{kind}": (width,) for i in (1, 2) for kind in ("weight", "bias")}
    shapes |= {f"{name}.attn.qkv.weight": (3 * width, width), f"{name}.attn.qkv.bias": (3 * width,)}
    shapes |= {f"{name}.attn.proj.weight": (width, width), f"{name}.attn.proj.bias": (width,)}
    shapes |= {f"{name}.mlp.fc1.weight": (4 * width, width), f"{name}.mlp.fc1.bias": (4 * width,)}
    shapes |= {f"{name}.mlp.fc2.weight": (width, 4 * width), f"{name}.mlp.fc2.bias": (width,)}
    return shapes | {f"{name}.{key}": shape for key, shape in own.items()}


def stem_shapes(patch: int = 16) -> dict[str, tuple[int, ...]]:
    return {
        "cls_token": (1, 1, WIDTH),
        "patch_embed.proj.weight": (WIDTH, 3, patch, patch),
        "patch_embed.proj.bias": (WIDTH,),
    }


def plain_shapes(final: str) -> dict[str, tuple[int, ...]]:
    shapes = {**stem_shapes(), "pos_embed": (1, 197, WIDTH), f"{final}.weight": (WIDTH,), f"{final}.bias": (WIDTH,)}
    for layer in range(DEPTH):
        shapes |= block_shapes(f"blocks.{layer}")
    return shapes


def mae_file() -> dict[str, torch.Tensor]:
    """MAE's encoder and decoder (models_mae.py), the decoder one layer deep."""
    shapes = plain_shapes("norm") | block_shapes("decoder_blocks.0", 32)
    shapes |= {"mask_token": (1, 1, 32), "decoder_pos_embed": (1, 197, 32)}
    for name, shape in (("decoder_embed", (32, WIDTH)), ("decoder_norm", (32,)), ("decoder_pred", (768, 32))):
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return random_tensors(shapes)


def usfm_file() -> dict[str, torch.Tensor]:
    shapes = {**stem_shapes(), "fc_norm.weight": (WIDTH,), "fc_norm.bias": (WIDTH,)}
    shapes["rel_pos_bias.relative_position_bias_table"] = (27 * 27 + 3, 12)
    for layer in range(DEPTH):
        shapes |= block_shapes(f"blocks.{layer}", gamma_1=(WIDTH,), gamma_2=(WIDTH,))
        del shapes[f"blocks.{layer}.attn.qkv.bias"]
        shapes |= {f"blocks.{layer}.attn.{one}_bias": (WIDTH,) for one in "qv"}
    return random_tensors(shapes)


def dinov3_file(heads: int) -> dict[str, torch.Tensor]:
    shapes = {**stem_shapes(), "storage_tokens": (1, 4, WIDTH), "mask_token": (1, WIDTH)}
    shapes |= {"norm.weight": (WIDTH,), "norm.bias": (WIDTH,)}
    for layer in range(DEPTH):
        shapes |= block_shapes(f"blocks.{layer}", **{"ls1.gamma": (WIDTH,), "ls2.gamma": (WIDTH,)})
    state = random_tensors(shapes)
    head = WIDTH // heads
    state["rope_embed.periods"] = 100.0 ** (2 * torch.arange(head // 4) / (head // 2))
    mask = torch.cat([torch.ones(WIDTH), torch.zeros(WIDTH), torch.ones(WIDTH)])
    return state | {f"blocks.{layer}.attn.qkv.bias_mask": mask for layer in range(DEPTH)}


def pe_file(patches: int, patch: int) -> dict[str, torch.Tensor]:
    names = {"norm1": "ln_1", "norm2": "ln_2", "attn.proj": "attn.out_proj", "fc1": "c_fc", "fc2": "c_proj"}
    shapes = {"conv1.weight": (WIDTH, 3, patch, patch), "class_embedding": (WIDTH,), "proj": (WIDTH, 64)}
    shapes["positional_embedding"] = (patches + 1, WIDTH)
    for norm in ("ln_pre", "ln_post"):
        shapes |= {f"{norm}.weight": (WIDTH,), f"{norm}.bias": (WIDTH,)}
    for layer in range(DEPTH):
        for key, shape in block_shapes(f"transformer.resblocks.{layer}").items():
            for ours, theirs in names.items():
                key = key.replace(ours, theirs)
            shapes[key.replace("attn.qkv.", "attn.in_proj_")] = shape
    pool = block_shapes("attn_pool")
    shapes["attn_pool.probe"] = (1, 1, WIDTH)
    for kind in ("weight", "bias"):
        shapes[f"attn_pool.attn.in_proj_{kind}"] = pool[f"attn_pool.attn.qkv.{kind}"]
        shapes[f"attn_pool.attn.out_proj.{kind}"] = pool[f"attn_pool.attn.proj.{kind}"]
        shapes[f"attn_pool.layernorm.{kind}"] = (WIDTH,)
        shapes[f"attn_pool.mlp.c_fc.{kind}"] = pool[f"attn_pool.mlp.fc1.{kind}"]
        shapes[f"attn_pool.mlp.c_proj.{kind}"] = pool[f"attn_pool.mlp.fc2.{kind}"]
    state = {f"visual.{key}": value for key, value in random_tensors(shapes).items()}
    return state | {"logit_scale": torch.tensor(4.6), "token_embedding.weight": torch.zeros(8, 4)}


def siglip2_file(heads: int) -> dict[str, torch.Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"embedding/kernel": (16, 16, 3, WIDTH), "embedding/bias": (WIDTH,)}
    shapes |= {"pos_embedding": (1, 196, WIDTH), "MAPHead_0/probe": (1, 1, WIDTH)}
    head = WIDTH // heads
    places = {f"Transformer/encoderblock_{layer}": ("LayerNorm_0", "LayerNorm_1") for layer in range(DEPTH)}
    places["MAPHead_0"] = ("LayerNorm_0",)
    for place, norms in places.items():
        for norm in norms:
            shapes |= {f"{place}/{norm}/scale": (WIDTH,), f"{place}/{norm}/bias": (WIDTH,)}
        for part in ("query", "key", "value"):
            name = f"{place}/MultiHeadDotProductAttention_0/{part}"
            shapes |= {f"{name}/kernel": (WIDTH, heads, head), f"{name}/bias": (heads, head)}
        name = f"{place}/MultiHeadDotProductAttention_0/out"
        shapes |= {f"{name}/kernel": (heads, head, WIDTH), f"{name}/bias": (WIDTH,)}
        for dense, shape in (("Dense_0", (WIDTH, 4 * WIDTH)), ("Dense_1", (4 * WIDTH, WIDTH))):
            shapes |= {f"{place}/MlpBlock_0/{dense}/kernel": shape, f"{place}/MlpBlock_0/{dense}/bias": shape[1:]}
    shapes |= {"Transformer/encoder_norm/scale": (WIDTH,), "Transformer/encoder_norm/bias": (WIDTH,)}
    generator = torch.Generator().manual_seed(13)
    state = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator) / math.sqrt(WIDTH if len(shape) > 1 else 4)
        state[f"params/img/{name}"] = values + (1.0 if name.endswith("scale") else 0.0)
    return state | {"params/txt/head/kernel": torch.zeros(4, 4), "params/t": torch.zeros(1)}


def narrow(name: str) -> ModelSpec:
    """The network of an entry with two layers of 192 channels; its heads, pooling and norms are those of the entry."""
    spec = find_model(name)
    return dataclasses.replace(spec, options={**spec.options, "embed_dim": WIDTH, "depth": DEPTH})


def double(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of a file in double precision, in which rounding does not hide a wrong layer."""
    return {key: value.double() for key, value in state.items()}


def assert_features_equal(name: str, path, expected: torch.Tensor, image: torch.Tensor) -> None:
    spec = narrow(name)
    weights = resolve_weights(f"hub:{name}={path}", spec)
    model = build_model(spec, weights, n_classes=2, image_size=image.shape[-1]).eval().double()
    with torch.no_grad():
        own = model.forward_head(model.forward_features(image), pre_logits=True)
    assert expected.abs().max() > 0.5
    assert (own - expected).abs().max() < 1e-6 * max(1.0, float(expected.abs().max()))


def image_of(name: str) -> torch.Tensor:
    side = foundation_models()[name].image_size
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(3)).double()


@pytest.mark.parametrize("prefix", ["module.model.", "module.", "model.", ""])
def test_tinyusfm_is_a_vit_with_twelve_heads_normalised_after_the_mean(tmp_path, prefix):
    state, image = random_tensors(plain_shapes("fc_norm")), image_of("tinyusfm")
    torch.save({f"{prefix}{key}": value for key, value in state.items()}, tmp_path / "TinyUSFM.pth")
    expected = layouts.plain_vit(double(state), image, 12, "fc_norm")
    assert_features_equal("tinyusfm", tmp_path / "TinyUSFM.pth", expected, image)
    fewer = layouts.plain_vit(double(state), image, 3, "fc_norm")  # the usual number of heads of a ViT-Ti
    assert (fewer - expected).abs().max() > 0.01


@pytest.mark.parametrize("name", ["usf_mae", "ultrafedfm"])
@pytest.mark.parametrize("table", ["model", None])
def test_maes_encoder_is_averaged_and_then_normalised(tmp_path, name, table):
    state, image = mae_file(), image_of(name)
    torch.save({table: state, "epoch": 99} if table else state, tmp_path / "checkpoint.pth")
    assert_features_equal(name, tmp_path / "checkpoint.pth", layouts.plain_vit(double(state), image, 12, "norm"), image)


def test_usfm_is_beit_with_relative_positions_that_all_layers_share(tmp_path):
    state, image = usfm_file(), image_of("usfm")
    torch.save(state, tmp_path / "USFM_latest.pth")
    assert_features_equal("usfm", tmp_path / "USFM_latest.pth", layouts.usfm(double(state), image, 12), image)


@pytest.mark.parametrize("name", ["dinov3_s16", "dinov3_b16"])
def test_dinov3_gives_its_class_token_under_the_authors_names(tmp_path, name):
    heads = foundation_models()[name].heads
    state, image = dinov3_file(heads), image_of(name)
    torch.save(state, tmp_path / "dinov3.pth")
    assert_features_equal(name, tmp_path / "dinov3.pth", layouts.dinov3(double(state), image, heads), image)


@pytest.mark.parametrize("name", ["pe_core_b16", "pe_core_l14"])
def test_the_perception_encoder_pools_by_attention_under_the_authors_names(tmp_path, name):
    entry, image = foundation_models()[name], image_of(name)
    patch = int(name[-2:])
    state = pe_file((entry.image_size // patch) ** 2, patch)
    torch.save(state, tmp_path / "pe.pt")
    assert_features_equal(
        name, tmp_path / "pe.pt", layouts.perception_encoder(double(state), image, entry.heads), image
    )


def test_siglip2_pools_by_attention_and_has_the_tanh_gelu(tmp_path):
    state, image = siglip2_file(12), image_of("siglip2_b16")
    np.savez(tmp_path / "siglip2_b16_224.npz", **{key: value.numpy() for key, value in state.items()})
    expected = layouts.siglip2(double(state), image, 12)
    assert_features_equal("siglip2_b16", tmp_path / "siglip2_b16_224.npz", expected, image)


@pytest.mark.parametrize("name", WITH_NETWORK)
def test_an_entry_agrees_with_the_network_that_it_describes(name):
    entry, spec = foundation_models()[name], ZOO[name]
    with torch.device("meta"):
        model = timm.create_model(spec.architecture, **spec.options)
    first = model.blocks[0].attn
    assert first.num_heads == entry.heads
    assert spec.source in SOURCES and list(spec.weights) == [name]
    assert {"license", "address", "network", "mean", "pretraining"} <= set(entry.evidence)
    assert input_statistics(spec) == (entry.mean, entry.std)


@pytest.mark.parametrize("name", [name for name in WITH_NETWORK if foundation_models()[name].timm])
def test_an_entry_agrees_with_timms_registry(name):
    entry = foundation_models()[name]
    config = timm.get_pretrained_cfg(entry.timm)
    assert config.license.casefold() == entry.license.casefold()
    assert (tuple(config.mean), tuple(config.std), config.input_size[-1]) == (entry.mean, entry.std, entry.image_size)
    assert entry.address == f"https://huggingface.co/{config.hf_hub_id}"
    assert entry.timm.partition(".")[0] == entry.network.architecture


def test_every_named_card_is_a_data_card_of_usvit():
    cards = {one.card for entry in foundation_models().values() for one in entry.pretraining.sets if one.card}
    assert cards == {"b", "breast", "bus_bra", "bus_uclm", "busi"} <= set(card_names())


def test_a_listed_data_set_stands_for_all_data_sets_with_its_images():
    assert {"busi", "curated_busi", "breastmnist"} <= set(foundation_models()["openus"].seen_collection().cards)
    assert "busi" not in foundation_models()["usf_mae"].seen_collection().cards


def test_weights_without_a_hub_say_where_they_are(no_network):
    with pytest.raises(UsvitError, match=r"drive\.google\.com.*CC-BY-NC-4\.0.*--weights hub:usfm=FILE"):
        resolve_weights("hub", find_model("usfm"))


def test_a_foundation_model_whose_network_usvit_lacks_says_so():
    with pytest.raises(UsvitError, match="VMamba"):
        find_model("openus")


def test_a_file_for_the_network_of_a_foundation_model_is_taken_to_be_its_release(tmp_path):
    torch.save(mae_file(), tmp_path / "any.pth")
    for choice in (f"hub:usf_mae={tmp_path / 'any.pth'}", str(tmp_path / "any.pth")):
        weights = resolve_weights(choice, narrow("usf_mae"))
        assert (weights.source, weights.upstream, weights.license) == ("file", "usf_mae", "MIT")
        assert [one.network for one in weights.collections] == ["USF-MAE"]
        assert "bus_bra" in weights.collections[0].cards
    assert resolve_weights("scratch", narrow("usf_mae")).collections == ()


def page() -> str:
    lines = [
        "# Foundation models",
        "",
        "What the files of these weights do not show, each fact with its source. This page is made from",
        "`usvit/models/foundation.yaml` by `USVIT_RENEW=1 python -m pytest tests/models/test_foundation.py -k page`;",
        "`usvit models hub` shows the same. A source `owner/name@commit, file` is a file of a public repository. usvit",
        "downloads none of these weights unless asked; [how to use them](../how-to/weights.md).",
        "",
        "A test on a data set that a list names is refused as contamination;",
        "[what that means](../explanation/leakage.md).",
    ]
    for name, entry in foundation_models().items():
        lines += ["", f"## {name}", "", "| | |", "|---|---|"]
        lines += [f"| {heading} | {text.replace('|', chr(92) + '|')} |" for heading, text in entry.facts()]
    return "\n".join(lines) + "\n"


def test_the_page_of_the_documentation_shows_the_entries():
    path = REPOSITORY / "docs" / "reference" / "foundation-models.md"
    if os.environ.get("USVIT_RENEW"):
        path.write_text(page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(), (
        "the entries have changed: USVIT_RENEW=1 python -m pytest tests/models/test_foundation.py -k page"
    )
