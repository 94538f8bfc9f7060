"""Compare ways to fine-tune a whole network on the inner validation parts of folds; no test part is predicted.

    python -m benchmarks.fine_tuning train --data-root DIR --recipe FILE --out OUT --name plain [--set KEY=VALUE ...]
    python -m benchmarks.fine_tuning compare OUT [--against plain:recomputed]

``train`` fine-tunes the network of each fold to its last step, so that no figure has been used to choose, and writes
``NAME.csv``: the probabilities of the inner validation images after the last step. Statistics of batch normalisation
and the average with the initial weights do not change how the weights are trained, so that one training gives several
ways: ``as_is``, ``recomputed``, and ``initial A``, the average with a share A of the initial weights
(``train.initial_share``) with recomputed statistics, or with those of the training averaged, too. ``compare`` prints
the means over folds of the AUC, the accuracy and the class-weighted loss of all ways, and paired differences, whose
intervals count groups and assume the largest variation of trainings.
"""

import argparse
import copy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

SHARES = (0.25, 0.5)


def train(options: argparse.Namespace) -> None:
    import torch

    from usvit.config import build_config, load_recipe, nested
    from usvit.data.datasets import roots_from
    from usvit.data.loading import PixelStore
    from usvit.experiments.cross_validation_setup import prepare
    from usvit.experiments.fold_training import FoldTrainer
    from usvit.progress import NO_PROGRESS

    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    settings = dict(one.split("=", 1) for one in options.set)
    last = nested({"data.dataset": "busi", "device": "cpu", "train.early_stopping": {"patience": None, "keep": "last"}})
    config = build_config(load_recipe(options.recipe), last, nested(settings))
    setup = prepare("cv", config, roots_from(options.data_root), NO_PROGRESS)
    store = PixelStore.build(
        setup.manifest, setup.preprocessing, memory_gb=2, folder=options.out, progress=NO_PROGRESS, with_lesions=True
    )
    trainer = FoldTrainer(setup, store, NO_PROGRESS)
    for fold in options.folds:
        table = pd.DataFrame(_train_fold(setup, trainer, fold, options.out / f"state-{fold}.pt"))
        file = options.out / f"{options.name}.csv"
        table.to_csv(file, mode="a", header=not file.exists(), index=False)


def _train_fold(setup: Any, trainer: Any, fold: int, checkpoint: Path) -> list[dict[str, object]]:
    """Train one fold; return a row for each way and inner validation image."""
    from usvit.models.trainable import head_names

    initial = {name: value.clone() for name, value in setup.network(fold).state_dict().items()}
    begun = time.monotonic()
    trained = trainer.train(fold, checkpoint)
    checkpoint.unlink(missing_ok=True)
    losses = " ".join(f"{loss:.2f}" for loss in trained.result.history.train_loss)
    print(f"fold {fold}: {trained.result.steps} steps, {time.monotonic() - begun:.0f} s, {losses}", flush=True)
    model, at, groups = trained.model, trained.at, setup.manifest.usable.group_id
    found: list[dict[str, object]] = []

    def note(way: str, *, recomputed: bool) -> None:
        wrapped = trainer.fabric.setup_module(copy.deepcopy(model))
        if recomputed:
            trainer.recompute_statistics(trained.subject, at["train"], fold, wrapped)
        prob = softmax(trainer.outputs(trained.subject, at["val"], wrapped).logits.astype(float), axis=1)
        for row, p in zip(at["val"], prob, strict=True):
            found.append(
                {"way": way, "fold": fold, "group": groups.iloc[row], "label": int(trained.units.targets[row])}
                | {f"p{k}": value for k, value in enumerate(p)}
            )

    note("as_is", recomputed=False)
    note("recomputed", recomputed=True)
    head, last = head_names(model), {name: value.clone() for name, value in model.state_dict().items()}
    for share in SHARES:
        mixed = {
            name: value
            if name in head or not value.is_floating_point()
            else (1 - share) * value + share * initial[name]
            for name, value in last.items()
        }
        model.load_state_dict(mixed)
        note(f"initial {share}", recomputed=True)
        note(f"initial {share} statistics too", recomputed=False)
    return found


def compare(options: argparse.Namespace) -> None:
    from scipy.stats import t as student

    from usvit.metrics.checks import group_codes
    from usvit.metrics.cross_validation import fold_mean
    from usvit.metrics.fold_figures import area_figure, mean_figure

    tables = [pd.read_csv(file).assign(name=file.stem) for file in sorted(options.out.glob("*.csv"))]
    table = pd.concat(tables, ignore_index=True)
    code, n_groups = group_codes(table.group.to_numpy(object), len(table))
    prob, label = table.filter(regex=r"^p\d").to_numpy(float), table.label.to_numpy()
    weight = 1 / np.bincount(label)[label]  # balanced, as in the training
    losses = -np.log(prob[np.arange(len(prob)), label].clip(1e-12)) * weight / weight.mean()
    every = np.ones(len(table), bool)
    figures: dict[str, dict[int, dict[str, Any]]] = {}
    for key, at in table.groupby(["name", "way", "fold"]).indices.items():
        assert isinstance(key, tuple)
        figures.setdefault(f"{key[0]}:{key[1]}", {})[key[2]] = {
            "AUC": area_figure(label[at] == options.positive, prob[at, options.positive], code[at], n_groups),
            "accuracy": mean_figure((prob[at].argmax(1) == label[at]).astype(float), every[at], code[at], n_groups),
            "loss": mean_figure(losses[at], every[at], code[at], n_groups),
        }
    for way, folds in figures.items():
        said = []
        for figure in ("AUC", "accuracy", "loss"):
            mean = fold_mean([[one[figure] for one in folds.values()]])
            said.append(f"{figure} {mean.value:.3f}" if mean else f"{figure} undefined")
            common = sorted(set(folds) & set(figures.get(options.against, {})))
            if common and way != options.against:
                pairs = [folds[fold][figure] - figures[options.against][fold][figure] for fold in common]
                value = fold_mean([pairs])
                assert value is not None
                variance, freedom = value.variance_with(options.share)
                half = float(student.ppf(0.975, freedom)) * variance**0.5
                said[-1] += f" ({value.value:+.3f} [{value.value - half:+.3f}, {value.value + half:+.3f}])"
        print(f"{way} | {len(folds)} folds | {' | '.join(said)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("train")
    one.add_argument("--data-root", required=True)
    one.add_argument("--recipe", required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--name", required=True)
    one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    one.add_argument("--folds", type=int, nargs="+", default=list(range(5)))
    one.add_argument("--threads", type=int, default=2)
    one.set_defaults(run=train)
    other = parts.add_parser("compare")
    other.add_argument("out", type=Path)
    other.add_argument("--against", default="plain:recomputed")
    other.add_argument("--positive", type=int, default=1, help="index of the positive class")
    other.add_argument("--share", type=float, default=1.0, help="correlation of folds in [0, 1]; 1 is the most careful")
    other.set_defaults(run=compare)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
