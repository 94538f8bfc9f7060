"""Locked-image tuning as a probe: a text tower is trained against frozen features, and classifies by prompts.

Source: Zhai et al. (2022), LiT, CVPR; Steiner et al. (2022), Table 6; Alabdulmohsin et al. (2023), section 5.2. Chosen
here: the size of the tower and its training (``usvit.upstream.config.text``); nothing is chosen on images.
"""

import logging

from usvit.progress import Progress
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.records.training import Chosen, TextTuning
from usvit.upstream.text_tuning.captions import caption_figures
from usvit.upstream.text_tuning.figures import (
    class_aucs,
    class_logits,
    concept_figures,
    concepts_of,
    image_vectors,
    recalls,
)
from usvit.upstream.text_tuning.pairs import texts_of
from usvit.upstream.text_tuning.tower import TextModule
from usvit.upstream.text_tuning.training import tune_decoder, tune_text
from usvit.upstream.transfer_learning import metrics
from usvit.upstream.transfer_learning.probes import FeatureSet, ProbeResult
from usvit.upstream.transfer_learning.splits import TransferSplits

logger = logging.getLogger(__name__)


def locked_image_tuning(
    config: TransferConfig, splits: TransferSplits, seen: dict[str, FeatureSet], progress: Progress
) -> ProbeResult:
    """Train a text tower on the training pairs, and measure it on the test images."""
    settings, test = config.text, seen["test"]
    texts, of_test = texts_of(settings, splits)
    tuned = tune_text(seen["train"].features, texts, settings, config.seed, progress)
    tower = tuned.module
    tower.concepts = concepts_of(of_test)
    vectors = image_vectors(tower, test.features)
    logits = class_logits(tower, vectors, splits.classes)
    zero_shot, recall, tables, n_cut = class_aucs(test.split, logits), [], {}, tuned.n_cut
    modules: list[TextModule] = [tower]
    captions = None
    if settings.decoder:
        trained = tune_decoder(seen["train"].features, texts, settings, config.seed, progress)
        modules.append(trained.module)
    if of_test is not None:
        of_concepts, scores = concept_figures(tower, vectors, of_test, test.split)
        zero_shot += of_concepts
        recall = recalls(tower, vectors, of_test, test.split)
        tables = {} if scores is None else {"concepts.csv": scores}
        if settings.decoder:
            captions, tables["captions.csv"] = caption_figures(trained.module, test.features, of_test, test.split)
        n_cut += tower.words.encoded([one.text for one in of_test], settings.context)[1]
    if n_cut:
        logger.warning(f"{n_cut} texts are longer than text.context={settings.context} byte pairs and were cut.")
    record = TextTuning(
        n_words=len(tower.words),
        n_params=sum(one.numel() for one in tower.parameters()),
        n_cut=n_cut,
        loss=tuned.loss,
        scale=float(tower.scale),
        seconds=tuned.seconds,
        zero_shot=zero_shot,
        recall=recall,
        captions=captions,
    )
    hits = metrics.right(test.split, logits)
    rows = [metrics.row("text", test.split, hits, interval=True, chosen=True)]
    summary = [metrics.line("zero-shot", test.split, hits)]
    return ProbeResult(rows, summary, Chosen(), logits, tables=tables, text=record, modules=modules)
