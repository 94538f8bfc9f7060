"""Picture of a scored frame: the tissue view, overlaid with the saliency of the network, and a caption with its scores.

Pictures are drawn in worker processes, without torch.
"""

from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from usvit.data.io import UInt8
from usvit.files import write_atomic
from usvit.scoring.dicom_out.findings import RESEARCH_USE_ONLY, Finding, ScoringModel
from usvit.scoring.dicom_out.network_maps import Saliency, scaled

OPACITY = 0.5
"""Opacity of the colours at the highest saliency; where saliency is 0, the tissue is unchanged."""
_DARKEST = 0.35
"""Start of the colour scale: its black would hide the tissue where saliency is low."""
LEVEL = 0.5
"""An outline is drawn around saliency of at least this value."""
OUTLINE = (0, 255, 255)
"""Cyan, which occurs neither in tissue nor in the colour scale."""
_NARROWEST = 480
"""Width in pixels below which views are enlarged by whole factors, so that the caption fits."""
COLOURED = "colour: where the network looks; not the outline of a lesion"
UNCOLOURED = "no colour: the map of where the network looks is the same everywhere"
_PAPER, _INK, _AMBER = (0, 0, 0), (235, 235, 235), (255, 191, 0)


def onto_view(saliency: Saliency, height: int, width: int, resize: str) -> Saliency:
    """Map (S, S) saliency of the network's square input to the (height, width) view from which it was resized.

    Args:
        saliency: values in [0, 1].
        height, width: size of the view, in pixels.
        resize: ``squash``, or ``pad``, where saliency over the black border is cut off.
    """
    if resize == "pad":
        side = len(saliency)
        across, down = (side, round(height / width * side)) if width > height else (round(width / height * side), side)
        left, top = round((side - across) / 2), round((side - down) / 2)  # as PIL.ImageOps.pad
        saliency = saliency[top : top + max(down, 1), left : left + max(across, 1)]
    large = cv2.resize(saliency.astype(np.float64), (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(large.clip(0, 1))


def render(
    view: UInt8, finding: Finding, scorer: ScoringModel, *, n_frames: int = 1, saliency: Saliency | None = None
) -> UInt8:
    """Draw one frame.

    Args:
        view: (H, W, 3) uint8, the tissue view, shown in full resolution.
        finding: its scores.
        scorer: the networks.
        n_frames: number of frames in the file; the frame number is shown if there are several.
        saliency: (S, S) over the network's square input. It is scaled to its own range (the mean over an ensemble has a
            smaller one), blended in with the perceptually ordered colour scale inferno, and outlined at ``LEVEL``.

    Returns:
        (H * k + caption, W * k, 3) uint8, k a whole factor, 1 unless the view is narrower than ``_NARROWEST``.
    """
    height, width = view.shape[:2]
    factor = max(1, -(-_NARROWEST // width))
    picture = np.ascontiguousarray(view.repeat(factor, axis=0).repeat(factor, axis=1))
    shown = None if saliency is None else scaled(saliency)
    if shown is not None and shown.any():
        picture = _blended(picture, onto_view(shown, height * factor, width * factor, scorer.resize))
    where = "" if shown is None else COLOURED if shown.any() else UNCOLOURED
    caption = _caption(finding, scorer, n_frames, where, width * factor)
    return np.concatenate([picture, caption])


def stacked(pictures: list[UInt8]) -> UInt8:
    """Stack pictures of several frames to (N, H, W, 3); smaller ones are padded with black."""
    height, width = (max(one.shape[axis] for one in pictures) for axis in (0, 1))
    frames = np.zeros((len(pictures), height, width, 3), dtype=np.uint8)
    for frame, one in zip(frames, pictures, strict=True):
        frame[: one.shape[0], : one.shape[1]] = one
    return frames


def write_png(path: Path, picture: UInt8) -> None:
    """Write (H, W, 3) uint8 as PNG without metadata."""
    write_atomic(path, lambda file: Image.fromarray(picture).save(file, format="PNG"))


def _blended(picture: UInt8, saliency: Saliency) -> UInt8:
    levels = ((_DARKEST + (1 - _DARKEST) * saliency) * 255).round().astype(np.uint8)
    colours = cv2.cvtColor(cv2.applyColorMap(levels, cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB)
    alpha = OPACITY * saliency[:, :, None]
    blended = np.ascontiguousarray((picture * (1 - alpha) + colours * alpha).round().astype(np.uint8))
    outlines, _ = cv2.findContours((saliency >= LEVEL).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(blended, outlines, -1, OUTLINE, thickness=max(1, picture.shape[1] // 600))
    return blended


def caption_lines(finding: Finding, scorer: ScoringModel, n_frames: int, where: str) -> list[str]:
    """Return the caption of a picture without ``RESEARCH_USE_ONLY``; nothing in it comes from the file.

    ``where`` is ``COLOURED``, ``UNCOLOURED``, or "" if no saliency is drawn.
    """
    spread = f", spread {finding.spread:.2f} over {scorer.n_members} networks" if finding.spread is not None else ""
    if finding.decision:
        decision = f"decision: {finding.decision}"
    else:
        why = finding.abstained or ("unusual" if finding.unusual and finding.threshold is not None else "")
        decision = "no decision" + (f" ({why} image)" if why else "")
    if finding.threshold is not None:
        decision += f", threshold {finding.threshold:.3f}"
    return [
        f"{scorer.positive}: calibrated probability {finding.calibrated:.3f}"
        + (spread if scorer.n_members > 1 else ""),
        decision,
        *(["UNUSUAL: unlike the training images of the networks"] if finding.unusual else []),
        *([where] if where else []),
        f"{scorer.software}, {scorer.name}, weights {scorer.sha256[:12]}"
        + (f", frame {finding.frame + 1} of {n_frames}" if n_frames > 1 else ""),
    ]


def _caption(finding: Finding, scorer: ScoringModel, n_frames: int, where: str, width: int) -> UInt8:
    size = max(13, width // 50)
    font, margin, leading = ImageFont.load_default(size), size // 2, round(size * 1.4)
    words = [(RESEARCH_USE_ONLY, _AMBER)]
    words += [(line, _INK) for line in caption_lines(finding, scorer, n_frames, where)]
    lines = [(part, ink) for line, ink in words for part in _wrapped(line, font, width - 2 * margin)]
    strip = Image.new("RGB", (width, 2 * margin + leading * len(lines)), _PAPER)
    pen = ImageDraw.Draw(strip)
    for number, (line, ink) in enumerate(lines):
        pen.text((margin, margin + number * leading), line, ink, font)
    return np.asarray(strip)


def _wrapped(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
