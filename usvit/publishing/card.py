"""The model card of a pushed model: that of an export, with the metadata of the Hugging Face hub and all intervals."""

from pathlib import Path

from usvit.data.datasets import card_names, load_card
from usvit.estimate import Estimate
from usvit.estimate_text import WORDS, estimate_text
from usvit.exporting import model_card, open_source
from usvit.figure_table import HEADLINE
from usvit.markup import markdown_text
from usvit.publishing.model_files import network_folders
from usvit.records import ExportedMetadata, MetricsRecord, load_record

CARD = "README.md"
_TYPES = {"auc": "roc_auc", "auc_macro_ovr": "roc_auc", "sensitivity": "recall", "brier": "brier_score"}
"""Figure -> its name on the hub, if another one."""


def published_card(model: Path) -> str:
    """Return the README of a model: YAML front matter of the hub, then Markdown.

    Args:
        model: Folder of a run, of a fold, or of an export as safetensors.

    Raises:
        UsvitError: The networks or ``metrics.json`` are damaged.
    """
    folders = network_folders(model)
    metadata = open_source(str(folders[0])).metadata
    file = model / "metrics.json"
    metrics = load_record(file, MetricsRecord) if file.is_file() else None
    lines = ["---", _front_matter(metadata, metrics), "---", model_card(metadata, "published", "")]
    if len(folders) > 1:
        n, first = len(folders), folders[0].name
        lines.append(f"The folder holds {n} networks, which are averaged; the table describes that of {first}.\n")
    lines += [*_results(metrics), *_data(metadata)]
    return "\n".join(lines)


def _figures(metrics: MetricsRecord) -> list[tuple[str, str, Estimate]]:
    """Return type, title and value of the figures to quote, those without a value left out."""
    found = [(row, getattr(metrics.headline, row.key)) for row in HEADLINE]
    return [
        (_TYPES.get(row.key, row.key), row.titled(row.title, metrics.positive_class), one)
        for row, one in found
        if one.value is not None
    ]


def _front_matter(metadata: ExportedMetadata, metrics: MetricsRecord | None) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    datasets = list(metadata.data_licenses)
    results = [
        EvalResult(
            task_type="image-classification",
            dataset_type="+".join(datasets) or "unknown",
            dataset_name=", ".join(datasets) or "unknown",
            dataset_split="test",
            metric_type=kind,
            metric_name=title,
            metric_value=one.value,
            metric_args={"ci95": None if one.ci95 is None else list(one.ci95), "method": one.method},
        )
        for kind, title, one in (_figures(metrics) if metrics is not None else [])
    ]
    licenses = metadata.exported.licenses
    stated = [f"initial weights: {licenses.first_weights}"] if licenses.first_weights else []
    stated += [f"training images of {name}: {text}" for name, text in licenses.data.items()]
    own: dict[str, object] = {"intended_use": metadata.intended_use}
    if stated:  # usvit cannot license weights; it repeats what was stated
        own |= {"license": "other", "license_name": "; ".join(stated)}
    if results:
        own |= {"model_name": metadata.architecture, "eval_results": results}
    return ModelCardData(
        library_name="usvit",
        pipeline_tag="image-classification",
        tags=["breast-ultrasound", "medical-imaging", "research-only", *metadata.classes],
        datasets=datasets or None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        **own,  # type: ignore[arg-type]
    ).to_yaml()


def _results(metrics: MetricsRecord | None) -> list[str]:
    if metrics is None:
        return []
    rows = [f"| {markdown_text(title)} | {estimate_text(one, WORDS)} |" for _, title, one in _figures(metrics)]
    tested = f"{metrics.n_images:,} test images in {metrics.n_groups:,} groups"
    lines = ["## Results", "", f"Figures of {tested}, with 95 % intervals that count groups.", ""]
    lines += ["| figure | value |", "|---|---|", *rows, ""]
    return lines + [f"- {markdown_text(text)}" for text in metrics.warnings] + [""] * bool(metrics.warnings)


def _data(metadata: ExportedMetadata) -> list[str]:
    """Return a section with the data card of each set of training images that has one in usvit."""
    cards = [load_card(name) for name in metadata.data_licenses if name in card_names()]
    texts = [
        f"{one.pretty_name}. Licence: {one.license}. Patient ids: {one.patient_ids}. {one.citation}" for one in cards
    ]
    lines = [f"- {markdown_text(text)}" for text in texts]
    return ["## Training images", "", *lines, ""] if lines else []
