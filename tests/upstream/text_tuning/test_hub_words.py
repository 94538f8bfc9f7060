"""Text towers of the hub: small ones that are made here, and what happens without library, network or safetensors."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.upstream.text_tuning.conftest import tuned
from usvit.errors import UsvitError
from usvit.files import read_csv
from usvit.progress import NoProgress
from usvit.upstream.config.text import TextConfig
from usvit.upstream.text_tuning import hub_words as module
from usvit.upstream.text_tuning.concept_scorer import load_concepts
from usvit.upstream.text_tuning.hub_words import FILLING, HubWords, hub_words
from usvit.upstream.text_tuning.tower import load_text_tower
from usvit.upstream.text_tuning.training import tune_text

transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "oval", "irregular", "round", "mass", "no", "cyst"]
TEXTS = ["oval mass", "irregular mass", "no mass", "round cyst"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
KINDS = {
    "bert": {"max_position_embeddings": 20, **SIZES},
    "clip": {"text_config": {"vocab_size": 10, "max_position_embeddings": 20, "eos_token_id": 2, **SIZES}}
    | {"vision_config": {"image_size": 32, "patch_size": 16, **SIZES}},
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 20},
    "t5": {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2},
}


def write_tower(folder, kind):
    """Write a tokenizer of whole words and a network with random weights, as a repository of the hub has them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    folder.mkdir(parents=True)
    words.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    given = KINDS[kind] if kind == "clip" else {"vocab_size": 10, **KINDS[kind]}
    network = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **given))
    network.save_pretrained(folder)
    return network.eval()


def features():
    of = np.arange(64) % 4
    return (np.eye(4)[of] * 3 + np.random.default_rng(0).normal(0, 0.3, (64, 4))).astype(np.float32), of


@pytest.mark.parametrize("kind", list(KINDS))
def test_texts_have_the_vectors_that_the_library_gives(kind, tmp_path):
    network = write_tower(tmp_path / kind, kind)
    config = TextConfig(tower=f"hf:{tmp_path / kind}", context=8, steps=1, lr=1e-12, weight_decay=0)
    tower = tune_text(features()[0], [TEXTS[one] for one in features()[1]], config, 0, NoProgress()).module
    for text in TEXTS:  # one at a time, so that the library needs no filling
        numbers = torch.tensor([[1, *(WORDS.index(word) for word in text.split()), 2]])
        with torch.no_grad():
            if kind == "clip":
                pooled = network.text_model(input_ids=numbers).pooler_output
            elif kind == "t5":
                pooled = network.encoder(input_ids=numbers).last_hidden_state.mean(1)
            else:
                found = network(input_ids=numbers)
                pooled = found.pooler_output if kind == "bert" else found.last_hidden_state.mean(1)
            expected = F.normalize(tower.text_map(pooled), dim=-1)[0]
        both = tower.embedded(["oval mass no cyst round", text])[1]  # with filling
        np.testing.assert_allclose(both, expected, atol=1e-5)


def test_a_tower_of_the_hub_is_tuned_and_its_file_needs_no_hub(tmp_path):
    write_tower(tmp_path / "hub", "bert")
    images, of = features()
    config = TextConfig(tower=f"hf:{tmp_path / 'hub'}", context=8, steps=150, batch_size=32, lr=0.003)
    tower = tune_text(images, [TEXTS[one] for one in of], config, 0, NoProgress()).module
    found = tower.images(torch.from_numpy(images)).numpy() @ tower.embedded(TEXTS).T
    assert (found.argmax(1) == of).mean() > 0.9
    tower.write(tmp_path)
    (tmp_path / "hub").rename(tmp_path / "gone")
    np.testing.assert_array_equal(load_text_tower(tmp_path).embedded(TEXTS), tower.embedded(TEXTS))


def test_long_texts_are_cut_and_counted(tmp_path):
    write_tower(tmp_path / "hub", "bert")
    words = hub_words(f"hf:{tmp_path / 'hub'}", 4)
    found, cut = words.encoded(["oval mass no cyst", "oval mass", ""], 4)
    assert found.tolist() == [[1, 4, 7, 2], [1, 4, 7, 2], [1, 2, FILLING, FILLING]] and cut == 1


def test_what_is_missing_is_said_in_one_sentence(tmp_path, monkeypatch):
    write_tower(tmp_path / "hub", "bert")
    tower = f"hf:{tmp_path / 'hub'}"
    with pytest.raises(UsvitError, match=r"texts of 20 numbers. Set text.context to 20 or less"):
        hub_words(tower, 21)
    (tmp_path / "hub" / "model.safetensors").rename(tmp_path / "hub" / "pytorch_model.bin")  # which may be a pickle
    with pytest.raises(UsvitError, match="no readable weights in safetensors"):
        module.hub_weights(tower)
    (tmp_path / "hub" / "tokenizer.json").write_text("{}")
    with pytest.raises(UsvitError, match="its tokenizer is not readable"):
        hub_words(tower, 8)
    (tmp_path / "hub" / "tokenizer.json").unlink()
    with pytest.raises(UsvitError, match=r"has no tokenizer.json"):
        hub_words(tower, 8)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsvitError, match=r"repository some/tower is neither .* nor reachable: HF_HUB_OFFLINE is set"):
        hub_words("hf:some/tower", 8)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UsvitError, match=r"hf:some/tower needs transformers.*usvit\[text\]"):
        hub_words("hf:some/tower", 8)


def test_settings_that_would_load_code_are_not_taken(tmp_path):
    write_tower(tmp_path / "hub", "bert")
    content = json.loads((tmp_path / "hub" / "config.json").read_text())
    content |= {"auto_map": {"AutoModel": "evil.Model"}, "_attn_implementation": "owner/kernel"}
    words = HubWords(json.dumps(content), (tmp_path / "hub" / "tokenizer.json").read_text())
    config = words.encoder(8).transformer.config
    assert not hasattr(config, "auto_map") and config._attn_implementation in ("sdpa", "eager")


@pytest.mark.slow
def test_a_run_takes_a_tower_of_the_hub_and_scores_concepts_without_it(phantoms, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsvitError, match=r"text.tower=hf:.*no folder"):
        tuned(phantoms, tmp_path / "run", tower=f"hf:{tmp_path / 'hub'}", context=16)
    assert not (tmp_path / "run").exists()
    write_tower(tmp_path / "hub", "bert")
    run = tuned(phantoms, tmp_path / "run", tower=f"hf:{tmp_path / 'hub'}", context=16, decoder=True, decoder_steps=2)
    (tmp_path / "hub").rename(tmp_path / "gone")
    table = read_csv(run / "concepts.csv", text=("image_id",)).set_index("image_id")
    files = {file.stem: str(file) for file in phantoms.rglob("*.png")}
    found = load_concepts(run, device="cpu").predict([files[name] for name in table.index])
    np.testing.assert_allclose(found.to_numpy(), table.to_numpy(), atol=1e-5)
