"""The cases of a study, found by the readers that the other commands use: of a run, a data set, or images."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.config import DataConfig
from usvit.data.datasets import mask_names, open_manifest, roots_from
from usvit.errors import UsvitError
from usvit.evaluation import read_raw
from usvit.explaining import CaseImages, open_source
from usvit.progress import Progress, task
from usvit.pseudonyms import Pseudonyms, default_key_path
from usvit.records import ExplainRecord, RunRecord, load_record
from usvit.reviewing.cases import FoundCases, FoundImage, ImageFacts, ReviewImage, StudyCase
from usvit.reviewing.pixels import look_at
from usvit.reviewing.settings import SourceSettings
from usvit.scoring import Readers, ReadSettings, ScoringItem, WorkerFailure, discover, read_scores
from usvit.wording import listed, plural

logger = logging.getLogger(__name__)
_POSITIVE = "malignant"
_UNIT_COLUMNS = {"lesion": "lesion_id", "exam": "exam_id", "patient": "patient_id"}


def find_cases(source: SourceSettings, n_cases: int | None, seed: int, progress: Progress) -> FoundCases:
    """Find the images of a source, draw cases, and open the files of the drawn ones.

    Args:
        source: where the cases come from.
        n_cases: number of cases to draw; None for all.
        seed: seed of the draw, which also gives the cases their order.
        progress: shown while files are read.

    Raises:
        UsvitError: the source cannot be read, has fewer cases, or an image of a case cannot be decoded.
    """
    if source.run is not None:
        images, positive, model = [*_of_run(source.run, source, progress)], _positive_of(source.run), source.run.name
    elif source.dataset is not None:
        images, positive = _of_dataset(source, progress)
        model = ""
    else:
        images, positive, model = _of_images(source)
    positive = source.positive or positive
    truths = {one.truth for one in images} - {""}
    if truths and positive not in truths:
        raise UsvitError(
            f"No case has the reference class '{positive}' (classes: {', '.join(sorted(truths))}). Name the positive "
            "class with source.positive."
        )
    if source.images:  # only the files say which of them are images, and to which case they belong
        images, opened = _only_images(images, [*_opened(images, source.crop, progress)])
    cases: dict[str, list[int]] = {}
    for number, one in enumerate(images):
        cases.setdefault(_unit_of(one, source.unit, opened[number] if source.images else None), []).append(number)
    chosen = _drawn([*cases], n_cases, seed)
    numbers = [number for name in chosen for number in cases[name]]
    if source.images:
        facts = {number: opened[number] for number in numbers}
    else:
        facts = {}
        for number, seen in zip(numbers, _opened([images[k] for k in numbers], source.crop, progress), strict=True):
            if isinstance(seen, WorkerFailure):
                raise UsvitError(
                    f"The image {images[number].name} cannot be read ({seen.code}): {images[number].item.source}. "
                    "Restore the file, or leave the image out of the source."
                )
            facts[number] = seen
    bare = sum(one.is_dicom and one.box is None for one in facts.values())
    if bare and source.crop == "tissue":
        logger.warning(
            f"{plural(bare, 'DICOM image')} of {len(facts)} do not describe their tissue region and are shown whole: "
            "look for names that are burned in ('usvit data audit') before others read them."
        )
    scores = None if source.scores is None else read_scores(source.scores)
    found = [_case(name, [ReviewImage(images[k], facts[k]) for k in cases[name]]) for name in chosen]
    return FoundCases(found, positive, None if scores is None else scores.threshold, model)


def _unit_of(image: FoundImage, unit: str, facts: ImageFacts | None) -> str:
    if unit == "image":
        return f"{image.dataset}/{image.name}" if image.dataset else image.name
    name = image.unit or (None if facts is None else {"exam": facts.exam, "patient": facts.patient}.get(unit))
    if not name:
        raise UsvitError(
            f"The image {image.name} does not say to which {unit} it belongs. Use source.unit: image, or leave it out."
        )
    return name


def _drawn(names: list[str], n: int | None, seed: int) -> list[str]:
    if n is not None and n > len(names):
        raise UsvitError(f"The source has {plural(len(names), 'case')}, and the study needs {n}.")
    return [names[k] for k in np.random.default_rng([seed, 0]).permutation(len(names))[:n]]


def _case(name: str, images: list[ReviewImage]) -> StudyCase:
    truths = {one.found.truth for one in images} - {""}
    if len(truths) > 1:
        raise UsvitError(f"The case {name} has images of several reference classes: {', '.join(sorted(truths))}.")
    scores = [one.found.score for one in images if one.found.score is not None]
    decisions = {one.found.decision for one in images}
    return StudyCase(
        name=name,
        patient=images[0].found.patient or images[0].facts.patient or name,
        images=tuple(images),
        truth=truths.pop() if truths else "",
        score=float(np.mean(scores)) if scores else None,
        decision=decisions.pop() if len(decisions) == 1 else "",
    )


def _opened(images: list[FoundImage], crop: str, progress: Progress) -> Iterator[ImageFacts | WorkerFailure]:
    """Open the images in reader processes, and yield what their files say, or why they cannot be read."""
    reading = ReadSettings(image_size=1, resize="squash", crop=crop)
    with (
        Readers(reading, workers=2, timeout=60, memory_gb=4) as readers,
        task(progress, "opening images", len(images), "images") as advance,
    ):
        for number, facts in enumerate(readers.map_calls(look_at, ((one.item, crop) for one in images))):
            advance(number + 1)
            yield facts


def _only_images(
    images: list[FoundImage], opened: list[ImageFacts | WorkerFailure]
) -> tuple[list[FoundImage], list[ImageFacts]]:
    """Leave out files that hold no image, and say so."""
    both = [(image, facts) for image, facts in zip(images, opened, strict=True) if isinstance(facts, ImageFacts)]
    lost = [image.item.source for image, facts in zip(images, opened, strict=True) if isinstance(facts, WorkerFailure)]
    if not both:
        raise UsvitError(f"None of the {plural(len(images), 'file')} is an image that can be read, such as {lost[0]}.")
    if lost:
        logger.warning(f"{plural(len(lost), 'file')} cannot be read as an image and is left out, such as {lost[0]}.")
    return [image for image, _ in both], [facts for _, facts in both]


def _of_run(run: Path, source: SourceSettings, progress: Progress) -> Iterator[FoundImage]:
    found = open_source(run)
    images = CaseImages(found, roots_from(source.data_root), progress)
    positive, maps = source.positive or _positive_of(run), _maps(source.maps)
    for case in found.cases:
        places, row = images.places[case.dataset], case.row
        if positive not in case.probabilities:
            raise UsvitError(
                f"The run {run} has no class '{positive}' (classes: {', '.join(case.probabilities)}). Name the "
                "positive class with source.positive."
            )
        yield FoundImage(
            item=ScoringItem(case.image_id, str(places.file(str(row["path"]))), frame=int(row["frame"]) or None),
            name=case.image_id,
            dataset=case.dataset,
            patient=case.group_id,
            unit=_text(row.get(_UNIT_COLUMNS.get(source.unit, ""))),
            side=_text(row.get("side")),
            spacing_mm=_number(row.get("pixel_spacing_mm")),
            truth=case.label,
            score=case.probabilities[positive],
            decision=case.predicted,
            masks=tuple(places.file(name) for name in mask_names(row["mask_path"])),
            maps=tuple(maps.get((case.dataset, case.image_id), ())),
        )


def _positive_of(run: Path) -> str:
    record = load_record(run / "run.json", RunRecord)
    return (record.data.positive_class if record.data else None) or _POSITIVE


def _maps(folder: Path | None) -> Mapping[tuple[str, str], list[tuple[str, Path]]]:
    """Return the pictures of ``usvit explain`` of each image."""
    found: dict[tuple[str, str], list[tuple[str, Path]]] = {}
    if folder is not None:
        for method, entry in load_record(folder / "explain.json", ExplainRecord).methods.items():
            for image in entry.images or ():
                file = Path(image.file or "")
                if image.dataset and image.image_id and file.name == str(file) and (folder / file).is_file():
                    found.setdefault((image.dataset, image.image_id), []).append((method, folder / file))
    return found


def _of_dataset(source: SourceSettings, progress: Progress) -> tuple[list[FoundImage], str]:
    table = None if source.table is None else str(source.table)
    config = DataConfig(dataset=source.dataset or "", table=table, positive=source.positive)
    manifest = open_manifest(config, roots_from(source.data_root), progress)
    found = []
    for row in manifest.usable.to_dict("records"):
        root = manifest.roots[row["dataset"]]
        found.append(
            FoundImage(
                item=ScoringItem(row["image_id"], str(root / row["path"]), frame=int(row["frame"]) or None),
                name=row["image_id"],
                dataset=row["dataset"],
                patient=str(row["group_id"]),
                unit=_text(row.get(_UNIT_COLUMNS.get(source.unit, ""))),
                side=_text(row.get("side")),
                spacing_mm=_number(row.get("pixel_spacing_mm")),
                truth=str(row["label"]),
                masks=tuple(root / name for name in mask_names(row["mask_path"])),
            )
        )
    return found, manifest.positive_class


def _of_images(source: SourceSettings) -> tuple[list[FoundImage], str, str]:
    items = [one for one in discover([str(one) for one in source.images]) if one.problem is None]
    truths = {} if source.labels is None else _labels(source.labels)
    scores, decisions, positive, model = _scores(source)
    pseudonyms = Pseudonyms.of_key(default_key_path()) if source.scores is not None else None
    found = []
    for item in items:
        own = "" if pseudonyms is None else pseudonyms.item(item.name)
        if pseudonyms is not None and own not in scores:
            continue  # it could not be scored, and the scored folder says why
        found.append(
            FoundImage(
                item=item,
                name=item.name,
                patient=item.patient,
                unit={"exam": item.study, "patient": item.patient}.get(source.unit),
                side=item.side,
                truth=truths.pop(item.name, ""),
                score=scores.get(own),
                decision=decisions.get(own, ""),
            )
        )
    if not found:
        raise UsvitError(
            f"No image of {', '.join(map(str, source.images))} is among the scores of {source.scores}: they are of "
            "other images, or were made with another key (USVIT_KEY)."
        )
    if truths:
        raise UsvitError(
            f"{source.labels}: {plural(len(truths), 'label')} of images that are not among the cases, such as "
            f"'{next(iter(truths))}'. The column path is relative to the folder of the images."
        )
    return found, positive, model


def _labels(path: Path) -> dict[str, str]:
    table = read_raw(path)
    for name in ("path", "label"):
        if name not in table:
            raise UsvitError(f"{path} has no column '{name}'. Its columns: {', '.join(map(str, table.columns))}.")
    twice = table["path"][table["path"].duplicated()].tolist()
    if twice:
        raise UsvitError(f"{path} has two labels of '{twice[0]}'.")
    return {str(name): str(label).strip() for name, label in zip(table["path"], table["label"], strict=True)}


def _scores(source: SourceSettings) -> tuple[Mapping[str, float], Mapping[str, str], str, str]:
    """Return score and decision of each file by its pseudonym, the positive class, and the name of the model."""
    if source.scores is None:
        return {}, {}, source.positive or _POSITIVE, ""
    scored = read_scores(source.scores)
    rows = scored.rows
    by_file = rows.assign(score=rows[f"calibrated_{scored.positive}"].astype(float)).groupby("item_id")
    decisions = by_file["decision"].agg(lambda words: words.iloc[0] if words.nunique() == 1 else "")
    scores = {str(item): float(score) for item, score in by_file["score"].mean().items()}
    words = {str(item): str(word) for item, word in decisions.items()}
    architectures = sorted({one.architecture for one in scored.networks})
    named = f"{listed(architectures)}, {plural(len(scored.networks), 'network')}"
    return scores, words, scored.positive, named if architectures else source.scores.name


def _text(cell: object) -> str | None:
    return cell if isinstance(cell, str) and cell else None


def _number(cell: object) -> float | None:
    return None if cell is None or pd.isna(cell) else float(str(cell))  # type: ignore[call-overload]
