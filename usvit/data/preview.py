"""A picture of what an augmentation policy does: the original with its lesion's outline, and variants beside it."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from usvit.data.augment import POLICIES, Augment, make_augment
from usvit.data.cards import load_cards
from usvit.data.identities import Identities
from usvit.data.images import BadImage, UInt8, decode, read_masks
from usvit.data.preprocessing import Preprocessing
from usvit.data.readers import ImageRecord
from usvit.data.roots import open_dataset
from usvit.data.view import lesion_cells
from usvit.errors import UsvitError, unknown
from usvit.files import write_atomic
from usvit.progress import Progress
from usvit.seeding import derive_seed

RESIZES = ("pad", "squash")
OUTLINE = (255, 210, 0)
_GAP, _LINE = 6, 18  # pixels between pictures, and of a line of text


@dataclass(frozen=True)
class Shown:
    """One image of the picture."""

    dataset: str
    record: ImageRecord
    pixels: UInt8
    """(S, S, 3) uint8, as the network would get it."""
    mask: np.ndarray
    """(S, S) bool; empty where there is no lesion, or no mask."""


def write_preview(
    datasets: str,
    roots: dict[str, Path],
    out: Path,
    progress: Progress,
    *,
    policy: str = "us",
    n: int = 6,
    variants: int = 5,
    size: int = 224,
    resize: str = "pad",
    seed: int = 0,
) -> list[Shown]:
    """Write a grid of pictures: one row an image, first the original, then variants.

    Args:
        datasets: names of cards joined by '+'.
        roots: data set -> folder, "" for all.
        out: a PNG file that does not exist yet.
        progress: shown while the embedded phantom is made.
        policy: one of ``POLICIES``, or ``all`` for one block each.
        n: images, the classes in turn.
        variants: of each image.
        size: side of the pictures, in pixels: the network's.
        resize: ``pad`` or ``squash``.
        seed: of the choice of images and of the variants.

    Returns:
        The images shown.

    Raises:
        UsvitError: an unknown name, a file that exists or is no PNG, a data set or an image that cannot be read.
    """
    if policy not in (*POLICIES, "all"):
        raise unknown("augmentation policy", policy, [*POLICIES, "all"])
    if resize not in RESIZES:
        raise unknown("way of resizing", resize, RESIZES)
    if out.suffix.lower() != ".png":
        raise UsvitError(f"The picture is a PNG file: give --out a name that ends in .png, not '{out.name}'.")
    if out.exists():
        raise UsvitError(f"{out} exists already. Choose another --out, or remove it.")
    preprocessing = Preprocessing(size, resize, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))  # statistics are not used here
    records, identities = [], {}
    for card in load_cards(datasets):
        identities[card.name] = Identities.of(card)
        root, of_card = open_dataset(card, roots, progress, identities[card.name])
        records += [(card.name, root, record) for record in of_card]
    shown = []
    for at in _chosen([record.label for _, _, record in records], n, seed):
        name, root, record = records[at]
        try:
            one = _read(name, root, record, preprocessing)
        except BadImage as bad:
            raise identities[name].told_bad(bad, record.path) from bad
        image_id = identities[name].image(record.image_id, record.path, record.frame)
        shown.append(replace(one, record=replace(record, image_id=image_id)))
    blocks = {name: make_augment(name) for name in (POLICIES[1:] if policy == "all" else (policy,))}
    picture = _draw(blocks, shown, variants, size, seed)
    write_atomic(out, lambda file: picture.save(file, format=Image.registered_extensions()[out.suffix.lower()]))
    return shown


def _chosen(labels: list[str], n: int, seed: int) -> list[int]:
    """Positions of ``n`` images (fewer where there are no more), the classes in turn, at random within each."""
    rng = np.random.default_rng(derive_seed(seed, "preview"))
    # How often its class came before it, in a shuffled order: all firsts, then all seconds, ...
    turn: dict[str, int] = {}
    keyed = []
    for at in rng.permutation(len(labels)).tolist():
        turn[labels[at]] = turn.get(labels[at], 0) + 1
        keyed.append((turn[labels[at]], labels[at], at))
    return sorted((at for _, _, at in sorted(keyed)[:n]), key=lambda at: (labels[at], at))


def _read(dataset: str, root: Path, record: ImageRecord, preprocessing: Preprocessing) -> Shown:
    image, tissue = decode(root / record.path, record.frame)
    mask = read_masks([root / path for path in record.mask_paths], image.shape[:2])
    return Shown(dataset, record, preprocessing.resized(image, tissue), preprocessing.resized_mask(mask, tissue))


def _draw(blocks: dict[str, Augment | None], shown: list[Shown], variants: int, size: int, seed: int) -> Image.Image:
    """One block a policy: a heading, then for each image its name and its pictures."""
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
                # The same seeds under each policy, so that views can be compared.
                number = derive_seed(seed, "preview", one.dataset, one.record.image_id, variant)
                pictures.append(augment(one.pixels, number, lesion_cells(one.mask)) if augment else one.pixels)
            for column, pixels in enumerate(pictures):
                picture.paste(Image.fromarray(pixels), (_GAP + column * (size + _GAP), top + _LINE))
            top += row
    return picture


def _outlined(one: Shown) -> UInt8:
    """The image with a line of one pixel around its lesion."""
    inner = one.mask.copy()
    for axis in (0, 1):
        for step in (-1, 1):
            inner &= np.roll(one.mask, step, axis)
    edge = one.mask & ~inner
    return np.where(edge[:, :, None], np.array(OUTLINE, dtype=np.uint8), one.pixels)
