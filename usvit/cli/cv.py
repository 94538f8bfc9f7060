"""``usvit cv`` and ``usvit train``: the main job."""

import itertools
import json
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

import typer

from usvit.cli import options as o
from usvit.cli.show import print_figures
from usvit.errors import EXIT_PARTLY

if TYPE_CHECKING:
    from usvit.run_dir import Outcome


def _protocol(kind: Literal["cv", "train"], help_text: str) -> Callable[..., None]:
    """One command for each protocol: they take the same options."""

    def command(
        dataset: o.Dataset = None,
        model: o.Model = None,
        recipe: o.Recipe = None,
        weights: o.WeightsOption = None,
        data_root: o.DataRoot = None,
        manifest: o.Manifest = None,
        keep_list: o.KeepList = None,
        folds: o.Folds = None,
        split_by: o.SplitBy = None,
        repeats: o.Repeats = None,
        out: o.Out = None,
        seed: o.Seed = None,
        device: o.DeviceOption = None,
        precision: o.Precision = None,
        workers: o.Workers = None,
        skip_bad: o.SkipBad = False,
        keep_conflicts: o.KeepConflicts = False,
        keep_ids: o.KeepIds = False,
        set_: o.Set = None,
        json_: o.Json = False,
    ) -> None:
        from usvit.config import build_config, load_recipe, parse_overrides

        options = o.given(
            data__dataset=o.dataset_of(dataset, manifest),
            data__manifest=manifest and str(manifest),
            data__keep_list=keep_list and str(keep_list),
            split__file=folds and str(folds),
            split__unit=split_by,
            split__repeats=repeats,
            data__skip_bad=skip_bad,
            data__keep_label_conflicts=keep_conflicts,
            data__keep_ids=keep_ids,
            model__name=model,
            model__weights=weights,
            seed=seed,
            device=device,
            precision=precision,
            workers=workers,
        )
        settings = load_recipe(recipe or _default_recipe(dataset if manifest is None else str(manifest), model))
        config = build_config(settings, options, parse_overrides(set_ or []))
        from usvit.cv import run_protocol  # from here on it takes seconds
        from usvit.progress import make_progress

        with o.resumable():
            outcome = run_protocol(
                kind,
                config,
                roots=o.data_roots(data_root),
                out=out,
                command=o.command_line(),
                progress=make_progress(),
            )
        if json_:
            print(json.dumps(outcome.result, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            _print(outcome)
        if outcome.record["data"]["skipped"]:
            raise typer.Exit(EXIT_PARTLY)

    command.__doc__ = help_text
    return command


cv = _protocol(
    "cv",
    """Cross-validate a model: patient- and duplicate-aware folds, out-of-fold predictions, metrics, a report.

    Without options: the demo on the embedded phantom. A killed run is resumed by the same command.
    """,
)
train = _protocol("train", "Train once on a 70/15/15 hold-out, with the same parts, files and report as 'usvit cv'.")


def _default_recipe(dataset: str | None, model: str | None) -> str:
    """The demo for the bare phantom; else the 2022 study's recipe for the model's family."""
    if model is None:
        return "demo" if dataset in (None, "phantom") else "gheflati2022_vit"
    from usvit.models.zoo import find_model

    return "gheflati2022_cnn" if find_model(model).family == "cnn" else "gheflati2022_vit"


def _print(outcome: "Outcome") -> None:
    reason_of = itemgetter("reason")
    metrics, data, folds = outcome.result, outcome.record["data"], outcome.record["folds"]
    for reason, images in itertools.groupby(sorted(data["excluded"], key=reason_of), reason_of):
        names = [f"{image['image_id']} of {image['dataset']}" for image in images]
        print(f"left out: {names[0] if len(names) == 1 else f'{len(names)} images'}: {reason}")
    for skipped in data["skipped"]:
        print(f"could not be read: {skipped['path']}: {skipped['reason']}")
    if folds["unit"] == "image":
        print(f"LEAKING SPLIT (by image, as asked): {folds['leaking_groups']} groups stand in two parts of a fold.")
    print(f"{data['n_images']} images in {data['n_groups']} groups; test predictions: {metrics['n_images']}")
    print_figures(metrics)
    print("For research use, not a medical device.")
    print(f"report: {outcome.path / 'report.html'}")
