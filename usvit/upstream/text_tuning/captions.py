"""What captions are measured by: perplexity, BLEU, and the descriptors that are read from them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.datasets import ImageText
from usvit.data.phantom import WORDING
from usvit.metrics.clustered_mean import clustered_mean
from usvit.metrics.proportions import clustered_share
from usvit.upstream.config.text import TextConfig
from usvit.upstream.records.training import CaptionDescriptor, CaptionFigures, TransferEstimate
from usvit.upstream.text_tuning.decoder import CaptionDecoder
from usvit.upstream.text_tuning.figures import concepts_of
from usvit.upstream.transfer_learning.splits import TransferSplit

Phrases = Mapping[str, Sequence[str]]


def phrases_of(config: TextConfig, kind: str, values: Sequence[str]) -> Phrases:
    """Return value -> phrases by which it is recognised: own ones, those of phantoms, or the value itself."""
    return {one: config.phrases.get(f"{kind}: {one}") or WORDING.get(kind, {}).get(one) or (one,) for one in values}


def read_value(caption: str, phrases: Phrases) -> str:
    """Return the value whose phrase stands in a caption, the longest of several; "" if none does.

    The longest counts because a phrase may hold another one: ``non-parallel orientation``.
    """
    said = [
        (len(phrase), value)
        for value, each in phrases.items()
        for phrase in each
        if re.search(rf"(?<!\w){re.escape(phrase.lower())}(?!\w)", caption.lower())
    ]
    return max(said)[1] if said else ""


def bleu(captions: Sequence[str], texts: Sequence[str]) -> float | None:
    """Return corpus BLEU in [0, 100] by sacrebleu, of lower-case texts; None if sacrebleu is not installed."""
    if find_spec("sacrebleu") is None:
        return None
    import sacrebleu

    return float(sacrebleu.corpus_bleu(list(captions), [list(texts)], lowercase=True).score)


def caption_figures(
    decoder: CaptionDecoder, features: NDArray[np.float32], texts: Sequence[ImageText], split: TransferSplit
) -> tuple[CaptionFigures, pd.DataFrame]:
    """Measure the captions of test images, and return a table of them.

    Args:
        decoder: The decoder.
        features: (n, D), features of the test images.
        texts: Their n texts, with concepts.
        split: The test images.

    Returns:
        The figures, and columns ``image_id``, ``caption``, and for each concept the value that the caption names, empty
        if it names none.
    """
    groups = np.arange(len(texts)) if split.groups is None else split.groups
    written = [one.text for one in texts]
    captions = decoder.captions(features)
    table, descriptors = {"image_id": split.table().image_id, "caption": captions}, []
    for kind, values in concepts_of(texts).items():
        phrases = phrases_of(decoder.config, kind, values)
        table[kind] = read = [read_value(caption, phrases) for caption in captions]
        truth = [one.concepts.get(kind, "") for one in texts]
        known = np.array([value != "" for value in truth])
        hits = np.array(read)[known] == np.array(truth)[known]
        ((_, most),) = Counter(value for value in truth if value).most_common(1)
        accuracy = TransferEstimate.of(clustered_share(hits, groups[known]))
        descriptors.append(
            CaptionDescriptor(
                of=kind,
                accuracy=accuracy,
                most_frequent=most / int(known.sum()),
                unread=float((np.array(read)[known] == "").mean()),
            )
        )
    figures = CaptionFigures(
        log_perplexity=TransferEstimate.of(clustered_mean(decoder.log_perplexities(features, written), groups)),
        bleu=bleu(captions, written),
        n_params=sum(one.numel() for one in decoder.parameters()),
        descriptors=descriptors,
    )
    return figures, pd.DataFrame(table)
