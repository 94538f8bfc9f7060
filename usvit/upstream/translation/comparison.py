"""The comparison of translators: the same pairs, vocabulary, steps and optimizer for each network."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F

import usvit
import usvit.documents as doc
from usvit.errors import Diverged, UsvitError
from usvit.estimate import Estimate
from usvit.files import OutputFolder, write_csv, write_text
from usvit.metrics.intervals import with_interval
from usvit.progress import Progress, task
from usvit.records import save_record
from usvit.seeding import derive_seed
from usvit.training import resolve_device, seed_everything
from usvit.upstream.config.translation import TranslationSettings, TranslatorName
from usvit.upstream.records.translation import TrainedTranslator, TranslationRecord
from usvit.upstream.records.written_record import WrittenRecord
from usvit.upstream.text_tuning.byte_pairs import PAD, BytePairs
from usvit.upstream.translation.networks import Translator
from usvit.upstream.translation.pairs import Pairs, generated_pairs, read_pairs, refuse_shared

_BEAM = 4
_TEST_BATCH = 64
_DRAWS = 200
"""Resamples of the test sentences."""
_PRINTED: dict[tuple[TranslatorName, int], float] = {
    ("resmlp", 6): 26.4,
    ("resmlp", 12): 26.8,
    ("transformer", 6): 27.3,
}
"""Networks of Table 4.5 -> BLEU from English to German; the Transformer is last."""
_FILES = ("translation.json", "translation.html", "translations.csv")


@dataclass(frozen=True)
class _Scale:
    width: int
    hidden: int
    heads: int
    context: int
    vocabulary: int
    batch: int
    lr: float
    warmup: int
    dropout: float
    steps: int
    smoothing: float = 0.1


SCALES = {
    # Thesis, section 4.3.5: width, hidden width, Adagrad at 0.2, warm-up, smoothing, dropout. Chosen here: the rest.
    "paper": _Scale(512, 2048, 8, 128, 32_000, 512, 0.2, 32_000, 0.15, 300_000),
    "tiny": _Scale(64, 256, 4, 8, 400, 64, 0.02, 60, 0.0, 600),
}


@dataclass(frozen=True)
class EncodedPairs:
    """Pairs as numbers of one vocabulary."""

    source: torch.Tensor
    """(n, L) int64."""
    target: torch.Tensor
    """(n, L) int64."""


def compare(settings: TranslationSettings, progress: Progress, command: str) -> WrittenRecord[TranslationRecord]:
    """Train and test each network, and write the record, the page and the translations.

    Raises:
        UsvitError: sacrebleu is missing, or pairs, device or folder cannot be used.
    """
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise UsvitError(
            "usvit study translation needs sacrebleu, which is not installed: pip install 'usvit[text]'."
        ) from error
    scale, tiny = SCALES[settings.scale], settings.scale == "tiny"
    train, test = _pairs(settings)
    refuse_shared(train, test)
    device = torch.device(resolve_device(settings.device, "fp32").type)
    folder = settings.out or Path("studies") / ("translation-tiny" if tiny else "translation")
    output = OutputFolder(folder, "a comparison of translators", files=_FILES)
    output.refuse_other_files()
    words = BytePairs.learnt((text for pair in train for text in pair), scale.vocabulary)
    fits = [pair for pair in train if max(len(words.numbers(text)) for text in pair) < scale.context]
    if not fits:
        raise UsvitError(f"All training pairs have {scale.context} tokens or more. Split them into sentences.")
    names: list[tuple[TranslatorName, int]] = [("resmlp", 2), ("transformer", 2)] if tiny else [*_PRINTED]
    steps = settings.steps or scale.steps
    encoded, sources = (
        _encoded(words, fits, scale),
        torch.from_numpy(words.encoded([s for s, _ in test], scale.context)[0]),
    )
    trained: list[dict[str, Any]] = []
    spoken: dict[tuple[TranslatorName, int], list[str]] = {}
    for kind, depth in names:
        seed_everything(settings.seed, "translation", 0)
        network = Translator(
            kind,
            depth=depth,
            vocabulary=len(words),
            context=scale.context,
            width=scale.width,
            hidden=scale.hidden,
            heads=scale.heads,
            dropout=scale.dropout,
        ).to(device)
        loss, seconds = train_translator(network, encoded, scale, steps, settings.seed, progress, f"{kind} {depth}")
        network.eval()
        spoken[kind, depth] = [
            words.text(one)
            for at in range(0, len(sources), _TEST_BATCH)
            for one in network.translated(sources[at : at + _TEST_BATCH].to(device), _BEAM)
        ]
        parameters = sum(one.numel() for one in network.parameters())
        trained.append({"kind": kind, "depth": depth, "parameters": parameters, "loss": loss, "seconds": seconds})
    score = BLEU(lowercase=True)  # the vocabulary is in lower case
    references = [target for _, target in test]
    bleus, differences = _bleus(score, list(spoken.values()), references, settings.seed)
    networks = [
        TrainedTranslator(
            name=f"{one['kind']}-{one['depth']}",
            bleu=bleu,
            difference=difference if one["kind"] == "resmlp" else None,
            printed=None if tiny else _PRINTED.get((one["kind"], one["depth"])),
            **one,
        )
        for one, bleu, difference in zip(trained, bleus, differences, strict=True)
    ]
    record = TranslationRecord(
        command=command,
        usvit_version=usvit.__version__,
        scale=settings.scale,
        generated=settings.pairs is None,
        seed=settings.seed,
        steps=steps,
        vocabulary=len(words),
        n_train=len(fits),
        n_too_long=len(train) - len(fits),
        n_test=len(test),
        signature=str(score.get_signature()),
        networks=networks,
    )
    with output.opened():
        table = pd.DataFrame({"source": [source for source, _ in test], "reference": references})
        table = table.assign(**{one.name: texts for one, texts in zip(networks, spoken.values(), strict=True)})
        write_csv(folder / "translations.csv", table)
        write_text(folder / "translation.html", doc.html_page(translation_document(record)))
        save_record(folder / "translation.json", record)
    return WrittenRecord(folder, record, folder / "translation.html")


def train_translator(
    network: Translator, pairs: EncodedPairs, scale: _Scale, steps: int, seed: int, progress: Progress, name: str
) -> tuple[float, float]:
    """Train by Adagrad with a linear warm-up and smoothed labels; return the mean loss of the last tenth, and seconds.

    Raises:
        Diverged: The loss is not finite.
    """
    started, device = time.monotonic(), network.embedding.weight.device
    optimizer = torch.optim.Adagrad(network.parameters(), lr=scale.lr)
    rng = np.random.default_rng(derive_seed(seed, "translation order"))
    n, losses, order = len(pairs.source), [], np.empty(0, dtype=np.int64)
    batch = min(scale.batch, n)
    with task(progress, name, steps, "steps") as advance:
        for step in range(steps):
            if len(order) < batch:
                order = rng.permutation(n)
            rows, order = torch.from_numpy(order[:batch]), order[batch:]
            source, target = _cut(pairs.source[rows]).to(device), _cut(pairs.target[rows]).to(device)
            optimizer.param_groups[0]["lr"] = scale.lr * min(1.0, (step + 1) / scale.warmup)
            logits = network(source, target).transpose(1, 2)
            loss = F.cross_entropy(logits, target, ignore_index=PAD, label_smoothing=scale.smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                raise Diverged(f"The loss of {name} is not finite at step {step + 1}.")
            advance(step + 1)
    return float(np.mean(losses[-max(1, steps // 10) :])), time.monotonic() - started


def translation_document(record: TranslationRecord) -> doc.Document:
    """Build the page of a comparison."""
    heads: list[str | doc.Column] = [
        "Network",
        *doc.numbers("Parameters", "BLEU", "minus the Transformer", "Thesis", "Seconds"),
    ]
    rows: list[tuple[doc.Cell, ...]] = [
        (
            one.name,
            one.parameters,
            one.bleu,
            one.difference or "",
            "" if one.printed is None else f"{one.printed:g}",
            round(one.seconds),
        )
        for one in record.networks
    ]
    notes = [doc.Note("The pairs are generated and are no language, so that the figures say nothing about the thesis.")]
    pairs = f"{record.n_train:,} training pairs, {record.n_test:,} test pairs"
    return doc.Document(
        title="Translation by a sequence-to-sequence ResMLP",
        kind=f"{pairs}, {record.steps:,} steps; {record.signature}",
        lead=notes if record.generated else [],
        sections=[doc.DocumentSection("Networks", [doc.Table("Networks", heads, rows)], "networks")],
        made_from=f"translation.json (schema {record.schema_version})",
    )


def _pairs(settings: TranslationSettings) -> tuple[Pairs, Pairs]:
    if settings.pairs is not None and settings.test is not None:
        return read_pairs(settings.pairs), read_pairs(settings.test)
    if settings.pairs is not None or settings.test is not None or settings.scale == "paper":
        raise UsvitError(
            "A comparison of translators needs training pairs and test pairs: pass --pairs FILE and --test FILE, or "
            "--scale tiny alone, which generates them."
        )
    return generated_pairs(settings.seed)


def _encoded(words: BytePairs, pairs: Pairs, scale: _Scale) -> EncodedPairs:
    source, target = (words.encoded([pair[side] for pair in pairs], scale.context)[0] for side in (0, 1))
    return EncodedPairs(torch.from_numpy(source), torch.from_numpy(target))


def _cut(tokens: torch.Tensor) -> torch.Tensor:
    """Cut a batch to its longest text."""
    return tokens[:, : int((tokens != PAD).sum(1).max())]


def _bleus(
    score: Any, spoken: Sequence[list[str]], references: list[str], seed: int
) -> tuple[list[Estimate], list[Estimate]]:
    """Return BLEU of each network, and its difference to that of the last one, with a bootstrap over sentences."""
    rng, n = np.random.default_rng(derive_seed(seed, "translation bootstrap")), len(references)

    def of(rows: Sequence[int]) -> list[float]:
        wanted = [[references[row] for row in rows]]
        return [score.corpus_score([texts[row] for row in rows], wanted).score for texts in spoken]

    value = np.array(of(range(n)))
    drawn = np.array([of(rng.integers(n, size=n).tolist()) for _ in range(_DRAWS)])

    def estimates(values: np.ndarray, draws: np.ndarray) -> list[Estimate]:
        method, limits = "bootstrap of sentences, percentile", np.quantile(draws, (0.025, 0.975), axis=0).T
        return [
            with_interval(
                float(one),
                (float(low), float(high)) if low < high else None,
                method=method,
                n_groups=n,
                reason="" if low < high else "it is the same in all resamples",
            )
            for one, (low, high) in zip(values, limits, strict=True)
        ]

    return estimates(value, drawn), estimates(value - value[-1], drawn - drawn[:, -1:])
