"""Translators: what a layer may see, the beam against a search of all texts, a toy language, and bad pairs."""

import itertools
import re

import numpy as np
import pytest
import torch
from sacrebleu import corpus_bleu

import usvit
from usvit.errors import LeakageError, UsvitError
from usvit.files import read_csv
from usvit.progress import NO_PROGRESS
from usvit.upstream.text_tuning.byte_pairs import END, PAD, BytePairs
from usvit.upstream.translation.comparison import SCALES, EncodedPairs, train_translator
from usvit.upstream.translation.networks import TokenMixing, Translator
from usvit.upstream.translation.pairs import generated_pairs

KINDS = ("resmlp", "transformer")
SHAPE = {"depth": 2, "vocabulary": 9, "context": 8, "width": 16, "hidden": 24, "heads": 2, "dropout": 0.0}


def network(kind, **changes):
    torch.manual_seed(0)
    made = Translator(kind, **SHAPE | changes).double().eval()
    for one in made.parameters():  # no sublayer is small, and no bias 0
        torch.nn.init.normal_(one, std=0.4)
    return made


def test_the_mixing_is_a_linear_map_by_the_submatrix():
    torch.manual_seed(0)
    mixing, x = TokenMixing(6, causal=True), torch.randn(2, 4, 3)
    matrix, bias = mixing.weight.detach().numpy(), mixing.bias.detach().numpy()
    expected = np.einsum("ij,bjd->bid", np.tril(matrix)[:4, :4], x.numpy()) + bias[:4][None, :, None]
    np.testing.assert_allclose(mixing(x).detach().numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_future_token_changes_no_earlier_output(kind):
    made, source = network(kind), torch.tensor([[2, 3, 4, END]])
    target = torch.tensor([[END, 2, 3, 4, 5, 6]])
    before = made.decoded(target, made.encoded(source), source)
    for at in range(1, 6):
        changed = target.clone()
        changed[0, at] = 8
        after = made.decoded(changed, made.encoded(source), source)
        torch.testing.assert_close(after[:, :at], before[:, :at], rtol=0, atol=1e-12)
        assert not torch.allclose(after[:, at], before[:, at])


@pytest.mark.parametrize("kind", KINDS)
def test_filling_changes_nothing(kind):
    made = network(kind)
    source, target = torch.tensor([[2, 3, END]]), torch.tensor([[4, 5, END]])
    alone = made(source, target)
    longer = torch.tensor([[5, 4, 3, 2, 6, END]])
    together = made(
        torch.cat([torch.nn.functional.pad(source, (0, 3), value=PAD), longer]),
        torch.cat([torch.nn.functional.pad(target, (0, 3), value=PAD), longer]),
    )
    torch.testing.assert_close(together[:1, :3], alone, rtol=0, atol=1e-10)
    torch.testing.assert_close(together[1:], made(longer, longer), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_beam_finds_the_most_likely_of_all_texts(kind):
    made = network(kind, vocabulary=4, context=4)
    source = torch.tensor([[2, 3, END], [3, 3, END]])
    found = made.translated(source, beam=64)
    for row, tokens in zip(source, found, strict=True):
        best = max((likelihood(made, row[None], text), text) for text in texts())
        assert tokens == [one for one in best[1] if one != END]


def texts():
    for length in range(4):
        yield from ([*one, END] for one in itertools.product((2, 3), repeat=length))
    yield from map(list, itertools.product((2, 3), repeat=4))  # cut at the context


def likelihood(made, source, text):
    target = torch.tensor([text])
    logits = made(source, target)
    logits = logits.log_softmax(2)
    return float(logits.gather(2, target[:, :, None]).sum().detach() / len(text))


@pytest.mark.parametrize("kind", KINDS)
def test_a_reversal_is_learnt(kind):
    rng = np.random.default_rng(0)
    length, n = 4, 3000
    words = rng.integers(2, 12, (n, length))
    end = np.full((n, 1), END)
    source, target = (torch.from_numpy(np.hstack([one, end])) for one in (words, words[:, ::-1] + 10))
    known = {tuple(one) for one in words[100:].tolist()}
    torch.manual_seed(0)
    made = Translator(kind, **SHAPE | {"vocabulary": 22, "width": 32, "hidden": 64, "depth": 1})
    train_translator(made, EncodedPairs(source[100:], target[100:]), SCALES["tiny"], 600, 0, NO_PROGRESS, kind)
    found = made.eval().translated(source[:100], beam=4)
    new = [at for at in range(100) if tuple(words[at].tolist()) not in known]
    said, wanted = ([" ".join(map(str, row)) for row in rows] for rows in (found, (words[:, ::-1] + 10).tolist()))
    assert len(new) > 60
    assert corpus_bleu([said[at] for at in new], [[wanted[at] for at in new]]).score > 90


def test_generated_pairs_are_reversed_words_and_the_vocabulary_gives_texts_back():
    train, test = generated_pairs(0)
    assert len(train) == 4000 and not {one for one, _ in train} & {one for one, _ in test}
    dictionary = {}
    for source, target in train + test:
        for word, other in zip(source.split(), target.split()[::-1], strict=True):
            assert dictionary.setdefault(word, other) == other
    assert len(set(dictionary.values())) == len(dictionary) == 24
    words = BytePairs.learnt((one for pair in train for one in pair), 400)
    assert all(words.text(words.numbers(one)) == one for one in (*test[0], "née, 12 mm", "x_y"))


def test_own_pairs_are_compared_and_written(tmp_path):
    train, test = generated_pairs(1)
    for name, pairs in (("train", train[:300]), ("test", test[:20])):
        (tmp_path / name).write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    files = {"pairs": tmp_path / "train", "test": tmp_path / "test"}
    found = usvit.compare_translators(scale="tiny", steps=3, device="cpu", out=tmp_path / "out", **files)
    record = found.record
    assert [(one.name, one.printed) for one in record.networks] == [("resmlp-2", None), ("transformer-2", None)]
    assert (record.generated, record.n_train, record.n_test) == (False, 300, 20)
    table = read_csv(found.path / "translations.csv")
    for one in record.networks:
        expected = corpus_bleu(table[one.name].tolist(), [table.reference.tolist()], lowercase=True).score
        low, high = one.bleu.ci95 or (
            expected,
            expected,
        )  # networks that have learnt nothing are equal in all resamples
        assert one.bleu.value == pytest.approx(expected) and low <= expected <= high
    difference = record.networks[0].difference
    assert difference.value == pytest.approx(record.networks[0].bleu.value - record.networks[1].bleu.value)
    assert record.networks[1].difference is None and "Transformer" in found.page.read_text()
    again = usvit.compare_translators(scale="tiny", steps=3, device="cpu", out=tmp_path / "out", **files)
    assert [one.bleu for one in again.record.networks] == [one.bleu for one in record.networks]


@pytest.mark.parametrize(
    "content, said, error",
    [
        ("a b\n", "Line 1 of .* is no pair", UsvitError),
        ("a\tb\nc\t\n", "Line 2 of .* is no pair", UsvitError),
        ("\n\n", "has no pair", UsvitError),
        ("A a\tb\n", "1 of 1 test sentences are training sentences", LeakageError),
        (None, "There is no file of pairs", UsvitError),
    ],
)
def test_bad_pairs_are_refused_before_anything_is_written(tmp_path, content, said, error):
    (tmp_path / "test").write_text("a a\tb\n")
    if content is not None:
        (tmp_path / "train").write_text(content)
    with pytest.raises(error, match=said):
        usvit.compare_translators(pairs=tmp_path / "train", test=tmp_path / "test", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pairs_are_needed_at_the_scale_of_the_paper():
    with pytest.raises(UsvitError, match=re.escape("pass --pairs FILE and --test FILE, or --scale tiny")):
        usvit.compare_translators()
