"""``usvit data prepare``: from a folder to a checked manifest in a file."""

import dataclasses
from pathlib import Path
from typing import Any

from usvit.data.cards import DataCard, load_cards
from usvit.data.check import check_against_card, count
from usvit.data.fetch import fetch_dataset
from usvit.data.manifest import Manifest, build_manifest
from usvit.data.manifest_file import read_manifest, write_manifest
from usvit.data.roots import root_from_environment
from usvit.errors import UsvitError
from usvit.progress import Progress


def prepare(
    datasets: str,
    roots: dict[str, Path],
    out: Path | None,
    progress: Progress,
    *,
    fetch: bool = False,
    skip_bad: bool = False,
    keep_label_conflicts: bool = False,
    accept_counts: bool = False,
    keep_ids: bool = False,
) -> dict[str, Any]:
    """Read data sets, check them against their cards, and write the manifest.

    Args:
        datasets: names or paths of cards joined by '+'.
        roots: data set -> folder; "" for all.
        out: the Parquet file; None: ``manifests/<names>.parquet``.
        progress: shown while files are downloaded and decoded.
        fetch: download what is not there, if its card has an address.
        skip_bad: leave out files that cannot be read.
        keep_label_conflicts: keep pixel-identical images with different labels.
        keep_ids: no pseudonyms for private data sets (``build_manifest``).
        accept_counts: write the manifest although counts differ from the card's.

    Returns:
        What was found, as printed and as JSON: ``manifest``, ``written`` (false: the same was there), ``sha256``,
        ``n_images``, ``n_groups``, ``datasets`` (name -> counts, root, licence, ``card_mismatch``), ``excluded``,
        ``skipped``.

    Raises:
        UsvitError: as ``build_manifest`` and ``fetch_dataset``; counts differ; or ``out`` holds something else.
    """
    cards = load_cards(datasets)
    out = out or Path("manifests") / f"{'+'.join(card.name for card in cards)}.parquet"
    if fetch:
        everywhere = roots.get("") or root_from_environment()
        roots = roots | {card.name: fetch_dataset(card, roots.get(card.name) or everywhere, progress) for card in cards}
    manifest = build_manifest(
        datasets, roots, progress, skip_bad=skip_bad, keep_label_conflicts=keep_label_conflicts, keep_ids=keep_ids
    )
    mismatch = {card.name: check_against_card(manifest.table, card) for card in cards}
    if any(mismatch.values()) and not accept_counts:
        raise _wrong_counts(cards, manifest, mismatch)
    written = _write_once(manifest, out)
    usable = manifest.usable
    return {
        "manifest": str(out),
        "written": written,
        "sha256": manifest.sha256(),
        "n_images": len(usable),
        "n_groups": int(usable.group_id.nunique()),
        "datasets": {
            card.name: {
                "root": str(manifest.roots[card.name]),
                "license": card.license,
                **dataclasses.asdict(count(manifest.table, card)),
                "card_mismatch": mismatch[card.name],
            }
            for card in cards
        },
        "excluded": manifest.excluded[["dataset", "image_id", "exclude_reason"]].to_dict("records"),
        "skipped": manifest.skipped_rows,
    }


def _wrong_counts(cards: list[DataCard], manifest: Manifest, mismatch: dict[str, list[str]]) -> UsvitError:
    lines = [
        f"{card.pretty_name} in {manifest.roots[card.name]} is not what its data card says:\n"
        + "\n".join(f"  {entry}" for entry in mismatch[card.name])
        for card in cards
        if mismatch[card.name]
    ]
    if manifest.skipped:
        lines.append(f"Skipped, because they cannot be read: {len(manifest.skipped)} files.")
    lines.append(
        "Nothing was written. Get the whole release ('usvit data info NAME' tells how), or pass --accept-counts if "
        "you mean to use what is there."
    )
    return UsvitError("\n".join(lines))


def _write_once(manifest: Manifest, out: Path) -> bool:
    """Write the manifest, unless the file holds it already; returns whether it was written."""
    if not out.exists():
        write_manifest(manifest, out)
        return True
    try:
        there = read_manifest(out, {}, keep_ids=True)
        same = there.sha256() == manifest.sha256() and _absolute(there) == _absolute(manifest)
    except UsvitError:
        same = False
    if not same:
        raise UsvitError(
            f"{out} holds something else: another manifest, or none. It is not overwritten. Name another file with "
            "--out, or remove it."
        )
    return False


def _absolute(manifest: Manifest) -> dict[str, Path]:
    return {name: root.absolute() for name, root in manifest.roots.items()}
