"""Choice of one of several upstream networks: by their upstream validation, or by adapting all of them.

Steiner et al. (2022), section 4.5: the cheap way adapts one network, that of the best upstream validation accuracy;
the costly way adapts all and takes the best by downstream validation. Figure 5 (left) shows the difference on the test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.errors import UsvitError
from usvit.evaluation import classes_of, read_predictions
from usvit.metrics.intervals import undefined
from usvit.metrics.paired_tests import mcnemar
from usvit.metrics.paired_tests import paired_difference as difference_of_shares
from usvit.records import RunRecord, load_record
from usvit.upstream.records.training import (
    Candidate,
    ChoiceDifference,
    ChoiceRecord,
    PretrainRecord,
    Recommended,
    TransferEstimate,
    TransferRecord,
    TransferRow,
    UpstreamValidation,
)
from usvit.upstream.transfer_learning.splits import TransferSplit


@dataclass(frozen=True)
class UpstreamCandidate:
    """One upstream network and its transfer."""

    name: str
    choice: str
    """The value of ``--weights``."""
    path: Path
    """The run directory of its transfer."""
    result: TransferRecord
    """The content of ``transfer.json``."""
    test: TransferSplit

    @property
    def downstream(self) -> float | None:
        """Its accuracy on the images on which choices were made; None if there are none."""
        chosen = self.result.chosen
        return chosen.leave_one_out_accuracy if chosen.val_accuracy is None else chosen.val_accuracy


def upstream_figures(choice: str) -> UpstreamValidation:
    """Return the validation figures of a run of ``usvit pretrain``; they are None if unknown."""
    path = Path(choice)
    path = path.parent if path.is_file() else path
    run = path.absolute().parent if (path / "model.json").is_file() else path
    try:
        folds = load_record(run / "pretrain.json", PretrainRecord).kept
        kept = next(one for one in folds if run == path or f"fold-{one.fold}" == path.absolute().name)
        images = load_record(run / "run.json", RunRecord).data.validation
    except (UsvitError, OSError, StopIteration):  # foreign weights have no record
        return UpstreamValidation(val_accuracy=None, val_loss=None, validation=None, name=None)
    return UpstreamValidation(
        val_accuracy=kept.val_accuracy,
        val_loss=kept.val_loss,
        validation=None if images is None else images.listing_sha256 or str(sorted(images.content().items())),
        name=None if images is None else images.name,
    )


def recommend(candidates: Sequence[UpstreamCandidate]) -> Recommended:
    """Choose in both ways, and compare the two choices on the test images, which neither used.

    The kept network is chosen by adapting all if that is possible, otherwise by upstream validation, otherwise it is
    the first.

    Args:
        candidates: Two or more networks, adapted in the same way and tested on the same images.
    """
    by_upstream, why_not = _by_upstream(candidates)
    by_all = _best(candidates, [one.downstream for one in candidates])
    kept = by_all or by_upstream or candidates[0]
    return Recommended(
        kept=kept.name,
        candidates=[
            Candidate(
                name=one.name,
                weights=Path(one.choice).name,
                upstream_val_accuracy=one.result.upstream.val_accuracy,
                upstream_validation=one.result.upstream.name,
                downstream_val_accuracy=one.downstream,
                test=_headline(one).accuracy,
            )
            for one in candidates
        ],
        by_upstream_validation=ChoiceRecord(name=None if by_upstream is None else by_upstream.name, reason=why_not),
        by_adapting_all=ChoiceRecord(
            name=None if by_all is None else by_all.name,
            reason=None if by_all is not None else "nothing was chosen on validation images",
        ),
        difference=paired_difference(by_upstream, by_all) if by_upstream and by_all else None,
        difference_of="test accuracy of the network chosen by upstream validation, minus that by adapting all",
    )


def paired_difference(a: UpstreamCandidate, b: UpstreamCandidate) -> ChoiceDifference:
    """Return the difference of the test accuracies of two networks on the same images (``paired_tests``)."""
    if a.name == b.name:
        n = len(a.test)
        zero = TransferEstimate(value=0.0, ci95=None, method="none", n_groups=n, reason="both choose the same network")
        return ChoiceDifference(accuracy=zero, mcnemar=None)
    tables = []
    for one in (a, b):
        if one.result.predictions is None:
            none = undefined(str(one.result.predictions_missing), len(one.test))
            return ChoiceDifference(accuracy=TransferEstimate.of(none), mcnemar=None)
        tables.append(read_predictions(one.path / one.result.predictions).sort_values(["dataset", "image_id"]))
    first, second = (_right(table) for table in tables)
    group = tables[0].group_id.to_numpy(object)
    n_groups = len(set(group.tolist()))
    difference = difference_of_shares(first, second, group, of="test images")
    return ChoiceDifference(
        accuracy=TransferEstimate.of(difference.without("p")),  # "mcnemar" holds it
        mcnemar=mcnemar(first, second, group, method="clustered" if n_groups < len(group) else "mid-p"),
    )


def _by_upstream(candidates: Sequence[UpstreamCandidate]) -> tuple[UpstreamCandidate | None, str | None]:
    """Return the best by upstream validation accuracy, or the reason why it is unknown."""
    figures = [one.result.upstream for one in candidates]
    unknown = [one.choice for one, has in zip(candidates, figures, strict=True) if has.val_accuracy is None]
    if unknown:
        return None, f"no upstream validation accuracy is known of {', '.join(Path(one).name for one in unknown)}"
    if len({has.validation for has in figures}) > 1:
        return None, "the upstream networks were validated on different images, so their accuracies do not compare"
    return _best(candidates, [has.val_accuracy for has in figures]), None


def _best(candidates: Sequence[UpstreamCandidate], score: Sequence[float | None]) -> UpstreamCandidate | None:
    """Return the first of the best candidates; None if a score is missing."""
    if any(one is None for one in score):
        return None
    return candidates[int(np.argmax(np.array(score, dtype=np.float64)))]


def _headline(candidate: UpstreamCandidate) -> TransferRow:
    """Return the line of the summary that describes the predictions: the last, with the most shots."""
    return candidate.result.summary[-1]


def _right(table: pd.DataFrame) -> np.ndarray:
    classes = classes_of(table)
    decision = table[[f"prob_{name}" for name in classes]].to_numpy(np.float64).argmax(axis=1)
    return np.array(classes, dtype=object)[decision] == table.label.to_numpy(object)
