"""Captions of a decoder: its likelihoods, what it learns, its file, and what is read from captions."""

import shutil

import numpy as np
import pytest
import torch

import usvit
from usvit.data.phantom import WORDING
from usvit.errors import UsvitError
from usvit.files import read_csv
from usvit.progress import NoProgress
from usvit.records import load_record
from usvit.upstream.config.text import TextConfig
from usvit.upstream.records.training import TransferRecord
from usvit.upstream.text_tuning.byte_pairs import END, BytePairs
from usvit.upstream.text_tuning.captions import bleu, phrases_of, read_value
from usvit.upstream.text_tuning.decoder import CaptionDecoder
from usvit.upstream.text_tuning.tower import load_text_module
from usvit.upstream.text_tuning.training import tune_decoder

KINDS = ("Oval mass.", "irregular mass, 2 mm", "no mass", "Zyste größer")
CONFIG = TextConfig(width=16, heads=2, decoder_steps=150, batch_size=32, lr=0.01, context=40)


@pytest.fixture(scope="module")
def learnt():
    rng = np.random.default_rng(0)
    of = np.arange(64) % 4
    features = (np.eye(4)[of] * 3 + rng.normal(0, 0.3, (64, 4))).astype(np.float32)
    texts = [KINDS[one] for one in of]
    return tune_decoder(features, texts, CONFIG, 0, NoProgress()).module, features, of


def test_a_decoder_writes_the_texts_that_it_has_learnt(learnt):
    decoder, features, of = learnt
    assert decoder.captions(features, batch=10) == [KINDS[one].lower() for one in of]


def test_the_likelihoods_are_those_of_each_byte_pair_after_the_ones_before_it(learnt):
    decoder, features, _ = learnt
    for text, image in ((KINDS[1], features[:1]), ("another text", features[:1])):
        numbers, total = [*decoder.words.numbers(text), END], 0.0
        for at, number in enumerate(numbers):
            logits = decoder.logits(decoder.hidden(torch.from_numpy(image), torch.tensor([[END, *numbers[:at]]])))
            total -= float(logits[0, -1].detach().double().log_softmax(0)[number])
        found = decoder.log_perplexities(np.repeat(image, 2, 0), [text, KINDS[0]])
        assert found[0] == pytest.approx(total / len(numbers), abs=1e-4)
    right, wrong = decoder.log_perplexities(features[[1, 2]], [KINDS[1]] * 2)
    assert right < wrong - 1  # the image tells which text it is


def test_the_file_gives_the_same_captions(learnt, tmp_path):
    decoder, features, _ = learnt
    decoder.write(tmp_path)
    again = load_text_module(tmp_path, CaptionDecoder)
    assert again.captions(features) == decoder.captions(features)


@pytest.mark.parametrize("text", KINDS)
def test_a_text_is_read_back_from_its_numbers(text):
    words = BytePairs.learnt(list(KINDS) * 2, 300)
    assert words.text([*words.numbers(text), END, 99]) == text.lower()


def test_the_descriptors_of_every_sentence_of_a_phantom_are_read(phantoms):
    table = read_csv(phantoms / "texts.csv")
    for kind in WORDING:
        phrases = phrases_of(TextConfig(), kind, list(WORDING[kind]))
        assert [read_value(text, phrases) for text in table.text] == table[kind].tolist()


def test_phrases_of_the_settings_come_first_and_a_value_is_its_own_phrase():
    config = TextConfig(phrases={"kind: a": ["Alpha beast"]})
    phrases = phrases_of(config, "kind", ["a", "b"])
    assert phrases == {"a": ("Alpha beast",), "b": ("b",)}
    assert [read_value(text, phrases) for text in ("an alpha beast", "B.", "alphab", "b alpha beast")] == [
        "a",
        "b",
        "",
        "a",
    ]


def test_bleu_is_that_of_sacrebleu_and_absent_without_it(monkeypatch):
    pytest.importorskip("sacrebleu")
    assert bleu(["the cat is on the mat"], ["the Cat is on the mat"]) == pytest.approx(100)
    # Papineni et al. (2002): of the runs of 1 to 4 words, 5 of 6, 3 of 5, 2 of 4 and 1 of 3 are in the reference
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert bleu(["the cat is on a mat"], ["the cat is on the mat"]) == pytest.approx(expected)
    monkeypatch.setattr("usvit.upstream.text_tuning.captions.find_spec", lambda name: None)
    assert bleu(["a"], ["a"]) is None


@pytest.mark.slow
def test_a_run_with_a_decoder_writes_and_measures_captions(trained, tmp_path):
    record = load_record(trained / "transfer.json", TransferRecord)
    found = record.text.captions
    table = read_csv(trained / "captions.csv", text=("image_id", "caption"))
    assert table.columns.tolist() == ["image_id", "caption", *(one.of for one in found.descriptors)]
    assert len(table) == record.images.n_test and 0 < found.log_perplexity.value < np.log(400)
    page = (trained / "report.html").read_text()
    assert "Captions" in page and "Log-perplexity" in page
    copy = shutil.copytree(trained, tmp_path / "copy")
    scorer = usvit.load_concepts(copy, device="cpu")
    assert isinstance(scorer.captions(np.zeros((48, 64), np.uint8))[0], str)
    (copy / "fold-0" / "captions.safetensors").unlink()
    with pytest.raises(UsvitError, match=r"has no captions.safetensors"):
        scorer.captions(np.zeros((48, 64), np.uint8))
