"""Preview of an augmentation policy: original images with the outline of the lesion, and random variants of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from usvit.config.data_commands import PreviewSettings
from usvit.config.keywords import takes_settings
from usvit.data.datasets import Identities, ImageRecord, load_cards, open_dataset
from usvit.data.io import BadImage, UInt8, decode, read_masks
from usvit.data.transforms import POLICIES, Augment, Preprocessing, lesion_cells, make_augment
from usvit.errors import UsvitError, unknown
from usvit.files import write_atomic
from usvit.progress import NO_PROGRESS, Progress
from usvit.seeding import derive_seed

OUTLINE = (255, 210, 0)
_GAP, _LINE = 6, 18  # pixels between pictures, and height of a line of text


@dataclass(frozen=True)
class _PreviewedImage:
    """One original image of the preview."""

    dataset: str
    record: ImageRecord
    pixels: UInt8
    """(S, S, 3) uint8, as the network receives it."""
    mask: np.ndarray
    """(S, S) bool, True in the lesion; all False without a lesion or a mask."""


@takes_settings
def write_preview(
    out: Path,
    datasets: str = "phantom",
    *,
    settings: PreviewSettings,
    roots: dict[str, Path] | None = None,
    progress: Progress = NO_PROGRESS,
) -> list[_PreviewedImage]:
    """Write a picture of augmented images: each row shows one original and its random variants.

    Args:
        out: PNG file to write; it must not exist yet.
        datasets: Names of data cards joined by '+'.
        settings: See ``PreviewSettings``.
        roots: Folder of each data set by name; the key "" stands for all others.
        progress: Shown while the embedded phantom is generated.

    Returns:
        The images shown.

    Raises:
        UsvitError: A name is unknown, ``out`` exists or is not a PNG file, or a data set or image cannot be read.
    """
    policy = settings.policy
    if policy not in (*POLICIES, "all"):
        raise unknown("augmentation policy", policy, [*POLICIES, "all"])
    if out.suffix.lower() != ".png":
        raise UsvitError(f"The picture is written as PNG: choose a name for --out that ends in .png, not '{out.name}'.")
    if out.exists():
        raise UsvitError(f"{out} exists already. Choose another --out, or remove it.")
    preprocessing = Preprocessing(
        settings.size, settings.resize, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    )  # mean and std are not used here
    records, identities = [], {}
    for card in load_cards(datasets):
        identities[card.name] = Identities.of(card)
        root, of_card = open_dataset(card, roots or {}, progress, identities[card.name])
        records += [(card.name, root, record) for record in of_card]
    shown = []
    for at in _chosen([record.label for _, _, record in records], settings.n, settings.seed):
        name, root, record = records[at]
        try:
            one = _read(name, root, record, preprocessing)
        except BadImage as bad:
            raise identities[name].told_bad(bad, record.path) from bad
        image_id = identities[name].image(record.image_id, record.path, record.frame or 0)
        shown.append(replace(one, record=replace(record, image_id=image_id)))
    blocks = {name: make_augment(name) for name in (POLICIES[1:] if policy == "all" else (policy,))}
    picture = _draw(blocks, shown, settings)
    write_atomic(out, lambda file: picture.save(file, format=Image.registered_extensions()[out.suffix.lower()]))
    return shown


def _chosen(labels: list[str], n: int, seed: int) -> list[int]:
    """Choose at most ``n`` positions at random; the classes take turns."""
    rng = np.random.default_rng(derive_seed(seed, "preview"))
    # Sort by the rank of an image within its class, in a shuffled order.
    turn: dict[str, int] = {}
    keyed = []
    for at in rng.permutation(len(labels)).tolist():
        turn[labels[at]] = turn.get(labels[at], 0) + 1
        keyed.append((turn[labels[at]], labels[at], at))
    return sorted((at for _, _, at in sorted(keyed)[:n]), key=lambda at: (labels[at], at))


def _read(dataset: str, root: Path, record: ImageRecord, preprocessing: Preprocessing) -> _PreviewedImage:
    image, tissue, _ = decode(root / record.path, record.frame)
    mask = read_masks([root / path for path in record.mask_paths], image.shape[:2])
    return _PreviewedImage(
        dataset, record, preprocessing.resized(image, tissue), preprocessing.resized_mask(mask, tissue)
    )


def _draw(blocks: Mapping[str, Augment | None], shown: list[_PreviewedImage], settings: PreviewSettings) -> Image.Image:
    """Draw one block per policy: a heading, then for each image its name and its pictures."""
    variants, size = settings.variants, settings.size
    row = _LINE + size + _GAP
    width = _GAP + (1 + variants) * (size + _GAP)
    picture = Image.new("RGB", (width, len(blocks) * (_LINE + _GAP + len(shown) * row) + _GAP), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(13)
    top = _GAP
    for name, augment in blocks.items():
        heading = f"policy '{name}': the original with the lesion's outline, then {variants} variants"
        pen.text((_GAP, top), heading, "black", font)
        top += _LINE + _GAP
        for one in shown:
            pen.text((_GAP, top), f"{one.dataset}: {one.record.image_id} ({one.record.label})", "black", font)
            pictures = [_outlined(one)]
            for variant in range(variants):
                # All policies use the same seeds, so that the variants can be compared.
                number = derive_seed(settings.seed, "preview", one.dataset, one.record.image_id, variant)
                pictures.append(augment(one.pixels, number, lesion_cells(one.mask)) if augment else one.pixels)
            for column, pixels in enumerate(pictures):
                picture.paste(Image.fromarray(pixels), (_GAP + column * (size + _GAP), top + _LINE))
            top += row
    return picture


def _outlined(one: _PreviewedImage) -> UInt8:
    """Return the image with a line one pixel wide around the lesion."""
    inner = one.mask.copy()
    for axis in (0, 1):
        for step in (-1, 1):
            inner &= np.roll(one.mask, step, axis)
    edge = one.mask & ~inner
    return np.where(edge[:, :, None], np.array(OUTLINE, dtype=np.uint8), one.pixels)
