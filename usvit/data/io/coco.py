"""Annotation files in the layout of COCO: outlines and run lengths of objects, drawn as COCO's own tools draw them.

The mask of an image is named like a file: ``instances_train.json#42`` has all objects of the image with the id 42.

Source: Lin et al. (2014), Microsoft COCO; ``maskApi.c`` of pycocotools for the pixels inside of an outline and for
compressed run lengths.
"""

import re
import threading
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from usvit.data.io.bad_image import BadImage, refuse_size, refusing, size_text
from usvit.data.io.types import UInt8
from usvit.errors import UsvitError
from usvit.files import file_state, read_json

_NAME = re.compile(r"(?P<file>.+\.json)#(?P<image>-?[0-9]{1,19})")
_MARGIN = 1.0
"""Pixels by which an outline or a box may lie outside of its image, as rounding in annotation tools puts it there."""
_UPSAMPLED = 5
"""Points per pixel of an outline (``rleFrPoly``)."""
_lock = threading.Lock()  # masks are drawn in threads; the first one reads the file, and the others wait

Mask = NDArray[np.bool_]
_Outline = Annotated[list[FiniteFloat], Field(min_length=6)]


class CocoRunLengths(BaseModel):
    """Numbers of pixels outside and inside of an object in turn, column by column; compressed if they are text."""

    size: tuple[int, int]
    """(H, W)."""
    counts: list[Annotated[int, Field(ge=0)]] | str

    def mask(self) -> Mask:
        """Return (H, W) bool. Raises ValueError if the counts do not fill the image."""
        counts = _decompressed(self.counts) if isinstance(self.counts, str) else self.counts
        if sum(counts) != self.size[0] * self.size[1]:
            raise ValueError(f"its run lengths have {sum(counts)} pixels, but the image is {size_text(self.size)}")
        return np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(self.size[::-1]).T


class CocoObject(BaseModel):
    """An entry of ``annotations``: one object, such as a lesion."""

    id: int | None = None
    image_id: int
    category_id: int
    segmentation: CocoRunLengths | list[_Outline]
    """Run lengths, or outlines x, y, x, y ... in pixels."""
    bbox: tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat] | None = None
    """Left, top, width, height in pixels: checked only, because boxes follow from the masks."""

    def refuse(self, height: int, width: int) -> None:
        """Raise ValueError if the object does not fit into its image."""
        if isinstance(self.segmentation, CocoRunLengths):
            if self.segmentation.size != (height, width):
                raise ValueError(
                    f"its mask is {size_text(self.segmentation.size)} pixels, but the image {self.image_id} is "
                    f"{size_text((height, width))}"
                )
        elif not self.segmentation:
            raise ValueError("it has neither an outline nor run lengths, and boxes alone are not read")
        elif any(len(one) % 2 or not _inside(one, height, width) for one in self.segmentation):
            reason = f"its outline leaves the image {self.image_id}, which is {size_text((height, width))}"
            raise ValueError(f"{reason}, or has a coordinate without its pair")
        if self.bbox is not None:
            left, top, wide, high = self.bbox
            if min(wide, high) < 0 or not _inside([left, top, left + wide, top + high], height, width):
                reason = f"its box leaves the image {self.image_id}, which is {size_text((height, width))} pixels"
                raise ValueError(f"{reason}, or has a negative size")

    def mask(self, height: int, width: int) -> Mask:
        """Return the pixels of the object, (H, W) bool. Raises ValueError as ``CocoRunLengths.mask``."""
        if isinstance(self.segmentation, CocoRunLengths):
            return self.segmentation.mask()
        return np.logical_or.reduce([_filled(np.array(one), height, width) for one in self.segmentation])


class CocoImage(BaseModel):
    """An entry of ``images``; other keys are kept."""

    model_config = ConfigDict(extra="allow")

    id: int
    file_name: str
    height: Annotated[int, Field(gt=0)]
    width: Annotated[int, Field(gt=0)]


class CocoCategory(BaseModel):
    """An entry of ``categories``: a class of objects."""

    id: int
    name: Annotated[str, Field(min_length=1)]


class CocoFile(BaseModel):
    """A whole annotation file."""

    images: list[CocoImage]
    annotations: list[CocoObject] = []
    categories: list[CocoCategory]

    @property
    def names(self) -> dict[int, str]:
        """Id of a category -> its name."""
        return {one.id: one.name for one in self.categories}

    @model_validator(mode="after")
    def _fits_together(self) -> "CocoFile":
        for kind, entries in (("images", self.images), ("categories", self.categories)):
            ids = [one.id for one in entries]
            if len(set(ids)) < len(ids):
                raise ValueError(f"'{kind}' has the id {next(one for one in ids if ids.count(one) > 1)} twice")
        sizes, names = {one.id: (one.height, one.width) for one in self.images}, self.names
        for number, one in enumerate(self.annotations):
            try:
                if one.image_id not in sizes:
                    raise ValueError(f"'images' has no image with its image_id {one.image_id}")
                if one.category_id not in names:
                    raise ValueError(f"'categories' has no entry with its category_id {one.category_id}")
                one.refuse(*sizes[one.image_id])
            except ValueError as error:
                raise ValueError(f"annotation {number if one.id is None else one.id} cannot be used: {error}") from None
        return self


class OpenedCoco:
    """An annotation file and the objects of each image.

    Args:
        path: Path of the file, for errors.
        content: What it says.
    """

    def __init__(self, path: Path, content: CocoFile):
        self.path, self.content = path, content
        self._images = {one.id: one for one in content.images}
        self._objects: dict[int, list[CocoObject]] = {one.id: [] for one in content.images}
        for one in content.annotations:
            self._objects[one.image_id].append(one)

    def objects(self, image: int) -> list[CocoObject]:
        """Return the objects of an image in the order of the file. Raises BadImage if there is no such image."""
        if image not in self._objects:
            raise BadImage(self.path, f"it has no image with the id {image}", "not_found")
        return self._objects[image]

    def drawn(self, image: int) -> NDArray[np.int64]:
        """Draw the objects of an image; a later one covers an earlier one.

        Returns:
            (H, W), the id of the category, and -1 where there is no object.

        Raises:
            BadImage: There is no such image, or run lengths are damaged.
        """
        objects = self.objects(image)
        shape = self._images[image].height, self._images[image].width
        refuse_size(self.path, *shape)
        drawn = np.full(shape, -1, dtype=np.int64)
        for one in objects:
            try:
                drawn[one.mask(*shape)] = one.category_id
            except ValueError as error:
                raise BadImage(self.path, f"annotation {one.id} of the image {image}: {error}") from error
        return drawn


def coco_file(path: Path) -> OpenedCoco:
    """Read an annotation file; the last two are kept.

    Raises:
        BadImage: The file cannot be read, exceeds the bounds of ``usvit.files.read``, or contradicts itself. The reason
            names entries by their numbers alone.
    """
    with refusing(path), _lock:
        return _load(path, file_state(path.stat()))


def coco_name(file: Path, image: int) -> Path:
    """Return the name of the mask of an image."""
    return file.with_name(f"{file.name}#{image}")


def mask_file(path: Path) -> Path:
    """Return the file in which a mask is: the annotation file, or the mask's own file."""
    named = _NAME.fullmatch(path.name)
    return path.with_name(named["file"]) if named else path


def coco_labels(path: Path) -> NDArray[np.int64] | None:
    """Return the mask that ``coco_name`` names (``OpenedCoco.drawn``); None for the path of any other file."""
    named = _NAME.fullmatch(path.name)
    return coco_file(mask_file(path)).drawn(int(named["image"])) if named else None


def coco_picture(path: Path) -> UInt8 | None:
    """Return the mask that ``coco_name`` names, (H, W, 3), white on black; None for the path of any other file."""
    labels = coco_labels(path)
    return None if labels is None else np.repeat(np.where(labels < 0, 0, 255).astype(np.uint8)[:, :, None], 3, axis=2)


@lru_cache(maxsize=2)
def _load(path: Path, state: tuple[int, ...]) -> OpenedCoco:
    """Read and keep a file; one that has changed is read again."""
    try:
        return OpenedCoco(path, CocoFile.model_validate(read_json(path, follow=True)))
    except ValidationError as error:
        errors: list[Any] = error.errors(include_input=False, include_url=False)
        deepest = max(errors, key=lambda one: len(one["loc"]))  # an outline that is too short is also no run lengths
        where = ".".join(map(str, deepest["loc"]))
        reason = f"{where + ': ' if where else ''}{deepest['msg'].removeprefix('Value error, ')}"
        raise BadImage(path, f"it is no annotation file of COCO: {reason}") from error
    except UsvitError as error:
        raise BadImage(path, str(error).removeprefix(f"Cannot read {path}: ").rstrip(".")) from error


def _inside(points: list[float], height: int, width: int) -> bool:
    x, y = points[::2], points[1::2]
    return min(*x, *y) >= -_MARGIN and max(x) <= width + _MARGIN and max(y) <= height + _MARGIN


def _decompressed(text: str) -> list[int]:
    """Decode compressed run lengths (``rleFrString``): digits of six bits, and differences to the last but one."""
    counts: list[int] = []
    value = shift = 0
    for character in text:
        digit = ord(character) - 48
        if not 0 <= digit < 64 or shift > 30:
            raise ValueError("its compressed run lengths are damaged")
        value |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            value -= (1 << shift) if digit & 16 else 0
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    if shift or min(counts, default=0) < 0:
        raise ValueError("its compressed run lengths are damaged")
    return counts


def _filled(outline: NDArray[np.float64], height: int, width: int) -> Mask:
    """Return the pixels inside of an outline x, y, x, y ... (``rleFrPoly``): (H, W) bool."""
    points = (outline.reshape(-1, 2) * _UPSAMPLED + 0.5).astype(np.int64)
    across, down = [], []
    for start, end in zip(points, np.roll(points, -1, axis=0), strict=True):
        steps = np.abs(end - start)
        main = 0 if steps[0] >= steps[1] else 1
        reverse = start[main] > end[main]
        first, last = (end, start) if reverse else (start, end)
        t = np.arange(steps[main] + 1)[:: -1 if reverse else 1]
        slope = (last[1 - main] - first[1 - main]) / max(1, steps[main])
        line = [t + first[main], (first[1 - main] + slope * t + 0.5).astype(np.int64)]
        across.append(line[main])
        down.append(line[1 - main])
    u, v = np.concatenate(across), np.concatenate(down)
    # Where the outline passes the centre line of a column, the pixels below change between outside and inside.
    at = np.flatnonzero(u[1:] != u[:-1])
    column = (np.where(u[at + 1] < u[at], u[at + 1], u[at + 1] - 1) + 0.5) / _UPSAMPLED - 0.5
    row = np.ceil(((np.minimum(v[at + 1], v[at]) + 0.5) / _UPSAMPLED - 0.5).clip(0, height))
    kept = (column == np.floor(column)) & (column >= 0) & (column <= width - 1)
    changes = np.bincount((column * height + row)[kept].astype(np.int64), minlength=height * width)
    return (np.cumsum(changes)[: height * width] % 2 == 1).reshape(width, height).T
