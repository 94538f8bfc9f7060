"""Saliency images of a run, if ``usvit explain`` created them (docs/reference/explain.schema.json)."""

import io
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from usvit.errors import UsvitError
from usvit.files import read_bytes
from usvit.records import ExplainedImage, ExplainRecord, ExplanationRecord, load_record
from usvit.reports.formatting import estimate
from usvit.reports.thumbnails import SIDE, jpeg_uri
from usvit.wording import listed, plural

_PICTURE_BYTES = 20_000_000

WORDS = {
    "rollout": "attention rollout",
    "attention": "attention of each head",
    "gradcam": "Grad-CAM",
    "occlusion": "occlusion",
    "distance": "attention distance",
    "residuals": "norms of the residual branches",
    "positions": "similarity of position embeddings",
    "filters": "principal components of the first filters",
    "mixing": "linear maps over patches",
}


@dataclass(frozen=True)
class SaliencyImages:
    """The content of ``RUN/explain``; empty if the folder does not exist."""

    folder: Path = Path()
    methods: dict[str, ExplanationRecord] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        """Sentences about the maps and their agreement with lesion masks."""
        found = []
        for name, one in self.methods.items():
            text = WORDS.get(name, name)
            if one.images is not None:
                text += f" of {plural(len(one.images), 'test image')}"
            if masks := one.against_masks:
                text += f"; against the lesion masks of {plural(masks.n_images, 'image')} in "
                text += f"{plural(masks.n_groups, 'group')}: pointing game {estimate(masks.pointing)} (a map that "
                text += f"points at the centre: {estimate(masks.centre)}), share of the map in the mask "
                text += f"{estimate(masks.share)} (area of the lesions: {estimate(masks.area)})"
            found.append(text[0].upper() + text[1:])
        return found

    def pictures(self, dataset: str, image_id: str, *, show_image: bool) -> tuple[tuple[str, str], ...]:
        """Return (name of the method, data URI) of each picture of one image.

        Args:
            dataset, image_id: the image.
            show_image: whether a picture may show the image itself next to or below its map.
        """
        found = []
        for name, one in self.methods.items():
            for image in one.images or []:
                if (image.dataset, image.image_id) != (dataset, image_id) or image.file is None:
                    continue
                if image.shows_image and not show_image:
                    continue
                try:
                    content = read_bytes(self.folder / image.file, _PICTURE_BYTES)
                    with Image.open(io.BytesIO(content)) as picture:
                        found.append((self._caption(name, image), jpeg_uri(picture, (3 * SIDE, 3 * SIDE // 2))))
                except (UsvitError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
                    continue  # the map is an extra; the case stands without it
        return tuple(found)

    def _caption(self, name: str, image: ExplainedImage) -> str:
        of_class = f" for {image.class_}" if image.class_ else ""
        return WORDS.get(name, name) + of_class + (", the same everywhere" if image.blank else "")


def read_explained(run_dir: Path) -> SaliencyImages:
    """Read ``RUN/explain/explain.json``; return an empty object if it does not exist.

    Raises:
        UsvitError: the file is damaged.
    """
    path = run_dir / "explain" / "explain.json"
    if not path.exists():
        return SaliencyImages()
    return SaliencyImages(path.parent, load_record(path, ExplainRecord).methods)


def explained_fact(explained: SaliencyImages) -> str | None:
    """Return a sentence about the maps for the checklists; None without maps."""
    names = [WORDS.get(name, name) for name in explained.methods]
    return f"Created by usvit explain: {listed(names)}. {'. '.join(explained.sentences)}." if names else None
