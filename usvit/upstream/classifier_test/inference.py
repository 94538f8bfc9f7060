"""One pass of a network over a test set, from which every rule of its heads gets its answers."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import lightning_fabric
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from usvit.data.transforms import test_view
from usvit.errors import UsvitError
from usvit.progress import Progress, task
from usvit.resources import usable_cores
from usvit.upstream.classifier_test.classifiers import FixedClassifier
from usvit.upstream.classifier_test.matching import Matching
from usvit.upstream.classifier_test.test_sets import TestImages
from usvit.upstream.config.test import HeadRule

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassifierAnswers:
    """The answers of one classifier to n images; every array has shape (n,)."""

    predicted: Ints
    """Output of the classifier that decides."""
    probability: Floats
    """Its probability among the competing outputs."""
    rank: Ints
    """Rank of the best right output, from 1; of equal outputs, the first counts as the more probable."""
    right_log_probability: Floats
    """Logarithm of the sum of the probabilities of the right outputs."""


def answers_of(
    classifier: FixedClassifier,
    test_set: TestImages,
    matching: Matching,
    fabric: lightning_fabric.Fabric,
    batch_size: int,
    progress: Progress,
) -> tuple[dict[HeadRule | None, ClassifierAnswers], float]:
    """Run a classifier over a test set once.

    Returns:
        The answers by rule of the head, and the images per second, reading and resizing included.

    Raises:
        BadImage: An image cannot be read.
        UsvitError: An output is not finite.
    """
    model = classifier.network()
    wrapped = fabric.setup_module(model).eval()
    pieces: dict[HeadRule | None, list[ClassifierAnswers]] = {head: [] for head in classifier.heads}
    kept = None if matching.kept is None else torch.from_numpy(matching.kept).to(fabric.device)
    normalised = classifier.view.normalisation.normalised
    labels = test_set.labels()
    title = f"{classifier.name} on {test_set.label}"
    begun, done = time.monotonic(), 0
    with (
        torch.inference_mode(),
        _outputs(model, classifier) as outputs,
        task(progress, title, len(test_set.images), "images") as advance,
    ):
        for rows, pixels in _batches(classifier, test_set, batch_size):
            whole = wrapped(normalised(torch.from_numpy(pixels).to(fabric.device)))
            logits = [one.float() for one in outputs(whole)]
            if not all(torch.isfinite(one).all() for one in logits):
                raise UsvitError(f"{title}: outputs are not finite. Use --precision fp32, or other weights.")
            if kept is not None:
                logits = [one[:, kept] for one in logits]
            right = _right_outputs(matching, labels[done : done + len(rows)], logits[0].shape[1]).to(fabric.device)
            for head, found in pieces.items():
                found.append(_answers(log_probabilities(logits, head), right, matching.kept))
            done += len(rows)
            advance(done)
    seconds = time.monotonic() - begun
    return {head: _joined(found) for head, found in pieces.items()}, done / seconds


def log_probabilities(logits: list[Tensor], head: HeadRule | None) -> Tensor:
    """Return the log-probabilities of the outputs by a rule.

    Args:
        logits: (B, M) of the only head, or of the class head and the distillation head.
        head: ``joint``: the softmax outputs of both heads are added (Touvron 2022, thesis, section 3.3), which decides
            as their mean does; ``logits``: the mean of both heads' logits (timm); ``class`` or ``distilled``: one head;
            None: the only head.

    Returns:
        (B, M) float32, at most 0.
    """
    if head == "joint":
        both = torch.stack([one.log_softmax(dim=1) for one in logits])
        return both.logsumexp(dim=0) - torch.log(torch.tensor(float(len(logits))))
    if head == "logits":
        return torch.stack(logits).mean(dim=0).log_softmax(dim=1)
    return logits[1 if head == "distilled" else 0].log_softmax(dim=1)


def _answers(log_prob: Tensor, right: Tensor, kept: Ints | None) -> ClassifierAnswers:
    """Reduce (B, M) log-probabilities to the answers; ``right`` is (B, M) bool with a True in each row."""
    best_value, best = log_prob.max(dim=1)
    of_right = log_prob.masked_fill(~right, -torch.inf)
    # The first of equal values counts, as ``argmax`` of numpy does; torch's ``max`` promises no order.
    best = (log_prob == best_value[:, None]).int().argmax(dim=1)
    right_value = of_right.max(dim=1).values[:, None]
    first_right = (of_right == right_value).int().argmax(dim=1)[:, None]
    place = torch.arange(log_prob.shape[1], device=log_prob.device)
    before = (log_prob > right_value) | ((log_prob == right_value) & (place < first_right))
    predicted = best.cpu().numpy().astype(np.int64)
    return ClassifierAnswers(
        predicted if kept is None else kept[predicted],
        best_value.exp().clamp(max=1).cpu().numpy().astype(np.float64),
        (1 + before.sum(dim=1)).cpu().numpy().astype(np.int64),
        of_right.logsumexp(dim=1).clamp(max=0).cpu().numpy().astype(np.float64),
    )


def _right_outputs(matching: Matching, labels: Sequence[tuple[int, ...]], width: int) -> Tensor:
    right = torch.zeros(len(labels), width, dtype=torch.bool)
    for at, classes in enumerate(labels):
        right[at, matching.right_of(classes)] = True
    return right


def _joined(pieces: list[ClassifierAnswers]) -> ClassifierAnswers:
    return ClassifierAnswers(
        np.concatenate([one.predicted for one in pieces]),
        np.concatenate([one.probability for one in pieces]),
        np.concatenate([one.rank for one in pieces]),
        np.concatenate([one.right_log_probability for one in pieces]),
    )


@contextmanager
def _outputs(model: nn.Module, classifier: FixedClassifier) -> Iterator[Callable[[Tensor], list[Tensor]]]:
    """Yield a function that turns the network's output into its heads' logits, for the latest call."""
    if classifier.heads == (None,):
        yield lambda whole: [whole]
        return
    caught: dict[int, Tensor] = {}

    def catch(index: int) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda module, inputs, output: caught.__setitem__(index, output)

    heads: tuple[nn.Module, nn.Module] = model.get_classifier()  # type: ignore[operator]
    hooks = [head.register_forward_hook(catch(index)) for index, head in enumerate(heads)]
    try:
        yield lambda whole: [caught[index] for index in range(len(heads))]
    finally:
        for hook in hooks:
            hook.remove()


def _batches(classifier: FixedClassifier, test_set: TestImages, size: int) -> Iterator[tuple[Ints, NDArray[np.uint8]]]:
    """Yield the rows and the pixels (B, S, S, 3) of each batch; the next one is read while the device computes."""
    view, rows = classifier.view, test_set.images.rows

    def one(row: int) -> NDArray[np.uint8]:
        picture = test_set.source.image(row)
        return test_view(picture, view.image_size, view.test_crop, resize=view.resize, interpolation=view.interpolation)

    with ThreadPoolExecutor(usable_cores()) as pool:
        ahead = pool.map(one, rows[:size].tolist())
        for start in range(0, len(rows), size):
            pixels = [*ahead]
            ahead = pool.map(one, rows[start + size : start + 2 * size].tolist())
            yield rows[start : start + size], np.stack(pixels)
