"""Vocabulary, losses and tower of locked-image tuning."""

import itertools

import numpy as np
import pytest
import torch

from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.upstream.config.text import TextConfig
from usvit.upstream.text_tuning.byte_pairs import END, PAD, BytePairs
from usvit.upstream.text_tuning.losses import sigmoid_loss, softmax_loss
from usvit.upstream.text_tuning.tower import load_text_tower
from usvit.upstream.text_tuning.training import tune_text

TEXTS = ["An oval mass.", "an irregular mass, spiculated margin", "no mass", "Größe: 12 mm, ovale Form"] * 3


@pytest.mark.parametrize("seed", range(3))
def test_both_losses_are_the_formulas_of_the_papers(seed):
    rng = np.random.default_rng(seed)
    n, scale, bias = 7, 9.0, -4.0
    image, text = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in rng.normal(size=(2, n, 5)))
    similar = torch.tensor(scale * image @ text.T + bias)

    softmax = 0.0  # CLIP, Figure 3: the mean of the cross-entropies along both axes
    for i in range(n):
        to_text = [np.exp(scale * image[i] @ text[j] + bias) for j in range(n)]
        to_image = [np.exp(scale * image[j] @ text[i] + bias) for j in range(n)]
        softmax -= (np.log(to_text[i] / sum(to_text)) + np.log(to_image[i] / sum(to_image))) / (2 * n)
    assert float(softmax_loss(similar)) == pytest.approx(softmax, abs=1e-5)

    sigmoid = 0.0  # SigLIP, section 3.2
    for i in range(n):
        for j in range(n):
            z = 1 if i == j else -1
            sigmoid -= np.log(1 / (1 + np.exp(z * (-scale * image[i] @ text[j] - bias)))) / n
    assert float(sigmoid_loss(similar)) == pytest.approx(sigmoid, abs=1e-5)


def naive_pairs(texts, n_merges):
    """Sennrich et al. 2016, Algorithm 1, on space-separated symbols."""
    words = [[f"{byte:02x}" for byte in word.encode()] for text in texts for word in text]
    learnt = []
    for _ in range(n_merges):
        counts = {}
        for word in words:
            for pair in itertools.pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts.values(), default=0)
        if best < 2:
            break
        pair = next(one for one, count in counts.items() if count == best)
        learnt.append(pair)
        for word in words:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == pair:
                    word[at : at + 2] = ["".join(pair)]
                at += 1
    return learnt


def test_the_pairs_are_those_of_a_naive_implementation():
    texts = [["banana", " band", " ban"] * 4, [" bananas"] * 5]  # without ties
    words = BytePairs.learnt(["".join(one) for one in texts], 258 + 3)
    spelled = {number: f"{number - 2:02x}" for number in range(2, 258)}
    for number, (a, b) in enumerate(words.merges, start=258):
        spelled[number] = spelled[a] + spelled[b]
    assert [(spelled[a], spelled[b]) for a, b in words.merges][:1] == naive_pairs(texts, 1)
    assert [spelled[one] for one in words.numbers("banana")] != [f"{byte:02x}" for byte in b"banana"]


def test_every_text_can_be_written_and_read_back():
    words = BytePairs.learnt(TEXTS, 300)
    whole = {number: bytes([number - 2]) for number in range(2, 258)}
    for number, (a, b) in enumerate(words.merges, start=258):
        whole[number] = whole[a] + whole[b]
    for text in (*TEXTS, "日本 🙂 never seen"):
        assert b"".join(whole[one] for one in words.numbers(text)).decode() == text.lower()


def test_long_texts_are_cut_and_counted_and_short_ones_filled_up():
    words = BytePairs([])
    found, cut = words.encoded(["abc", "abcd", ""], 4)
    assert found.tolist() == [[99, 100, 101, END], [99, 100, 101, END], [END, PAD, PAD, PAD]]
    assert cut == 1  # "abc" and its end just fit


@pytest.mark.parametrize(("loss", "projection"), [("softmax", True), ("sigmoid", False)])
def test_a_tower_learns_its_pairs_and_its_file_gives_the_same_vectors(loss, projection, tmp_path):
    rng = np.random.default_rng(0)
    kinds = ("oval mass", "irregular mass", "no mass", "round cyst")
    of = np.arange(64) % 4
    features = (np.eye(4)[of] * 3 + rng.normal(0, 0.3, (64, 4))).astype(np.float32)
    config = TextConfig(loss=loss, projection=projection, width=16, heads=2, depth=1, steps=80, batch_size=16, lr=0.01)
    found = tune_text(features, [kinds[one] for one in of], config, 0, NoProgress())
    images = found.module.images(torch.from_numpy(features)).numpy()
    assert ((images @ found.module.embedded(kinds).T).argmax(1) == of).mean() > 0.9
    found.module.write(tmp_path)
    again = load_text_tower(tmp_path)
    assert np.array_equal(again.embedded(kinds), found.module.embedded(kinds))
    assert again.embedded(["oval mass"])[0] == pytest.approx(
        found.module.embedded(["oval mass", TEXTS[1]])[0], abs=1e-6
    )


def test_a_damaged_or_missing_file_is_named(tmp_path):
    with pytest.raises(UsvitError, match=r"text.safetensors.*--how text"):
        load_text_tower(tmp_path)
    (tmp_path / "text.safetensors").write_bytes(b"not a file of weights")
    with pytest.raises(UsvitError, match=r"text.safetensors"):
        load_text_tower(tmp_path)
