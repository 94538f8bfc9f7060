"""The model card of an export, generated from its metadata."""

from usvit.data.io import PICTURE_NAMES
from usvit.markup import markdown_code, markdown_text
from usvit.records import ExportedMetadata

_HOW_TO = {
    "safetensors": """\
```python
from pathlib import Path

import torch

from usvit.data.io.decoding import read_image
from usvit.models.trained_model import load_trained

trained = load_trained(Path("."))  # the folder of this file
pixels = torch.tensor(trained.preprocessing.resized(read_image(Path("image.png"))))[None]
with torch.inference_mode():
    print(trained.classes, trained.model(trained.preprocessing.normalised(pixels)).softmax(1))
```

`model.safetensors` holds the weights by timm's names: where the architecture is timm's own, a network that
`timm.create_model` makes by the name {timm} takes them without usvit.
""",
    "onnx": """\
```python
import json

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("model.onnx")
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])

picture = Image.open("image.png").convert("RGB")
picture = {resize}
probabilities = session.run(["probabilities"], {{"image": np.asarray(picture)[None]}})[0]
print(dict(zip(classes, probabilities[0].tolist())))
```

The input `image` is (B, {size}, {size}, 3) uint8: the resized RGB picture as it is, for any B. Normalisation is in
the graph. The outputs are `logits` and `probabilities`, (B, {n_classes}) float32 in the order of the classes. Classes,
preprocessing, licences and intended use are also in the file's metadata.
""",
    "monai": """\
```sh
pip install 'usvit[export]=={version}'
python -m monai.bundle run --config_file BUNDLE/configs/inference.json --bundle_root BUNDLE --input IMAGE_OR_FOLDER
```

`BUNDLE` is this bundle's folder. These formats are read, each frame of a file by itself: DICOM, {pictures}.
The probabilities go to `BUNDLE/eval/scores.csv` (`--output_dir` names another folder), files that cannot be read to
`failures.csv` beside it. Preprocessing and network are usvit's own code, so that the scores are those of usvit.
`--device cpu` or `--device cuda` chooses where to compute.
""",
    "published": """\
```sh
usvit models pull ADDRESS model
usvit score --model model --input IMAGES --out scores
```

`ADDRESS` is that of this model, such as hf://OWNER/NAME. The files are those of `model-files.json`, with their SHA-256.
""",
}

_RESIZE = {
    "pad": "padded with black to a square around its centre, resized to",
    "squash": "resized, whatever its aspect ratio, to",
}
_RESIZE_CODE = {
    "pad": "ImageOps.pad(picture, ({size}, {size}), Image.Resampling.BICUBIC, color=0)",
    "squash": "picture.resize(({size}, {size}), Image.Resampling.BICUBIC)",
}


def model_card(metadata: ExportedMetadata, format_: str, checked: str) -> str:
    """Return the README of an export, in Markdown.

    Args:
        metadata: ``model.json``.
        format_: a key of ``_HOW_TO``.
        checked: result of the comparison with usvit's own prediction; may be empty.
    """
    size = metadata.preprocessing.image_size
    how_to = _HOW_TO[format_].format(
        pictures=PICTURE_NAMES,
        size=size,
        n_classes=len(metadata.classes),
        timm=markdown_code(metadata.timm),
        version=metadata.exported.usvit_version,
        resize=_RESIZE_CODE[metadata.preprocessing.resize].format(size=size),
    )
    return "\n".join(
        [
            f"# {markdown_text(metadata.architecture)}: {markdown_text(' / '.join(metadata.classes))}",
            "",
            "A classifier of breast-ultrasound images. **For research only; not a medical device.** It must not "
            "decide, nor help to decide, on the care of a patient.",
            "",
            *_untrained(metadata),
            "| | |",
            "|---|---|",
            *(f"| {name} | {markdown_text(value)} |" for name, value in _rows(metadata, checked)),
            "",
            "## Use",
            "",
            how_to,
            "## Limits",
            "",
            "It was trained on the scanners, hospitals and kinds of lesion of its training images only, and it gives a "
            "result for any image, of a breast or not. Its probabilities are "
            + ("not calibrated." if metadata.temperature is None else "calibrated on those images only.")
            + " `model.json` lists the pixel hashes and, if recorded, the near-duplicate descriptions of the images "
            "that it has seen: do not test it on these images or on near-duplicates of them.",
            *_collections(metadata),
            "",
        ]
    )


def _collections(metadata: ExportedMetadata) -> list[str]:
    """Return a line for each foundation model that the network started from, with its published data sets."""
    lines = []
    for one in metadata.seen_collections or ():
        names = ", ".join(listed.name for listed in one.sets) or "not known"
        lines.append(f"- {markdown_text(f'{one.network} was pre-trained on: {names} ({one.source}).')}")
    return ["", "Do not test it on these data sets either:", "", *lines] if lines else []


def _untrained(metadata: ExportedMetadata) -> list[str]:
    if metadata.head != "untrained":
        return []
    return ["**The head of this network is new and untrained: its probabilities mean nothing yet.**", ""]


def _rows(metadata: ExportedMetadata, checked: str) -> list[tuple[str, str]]:
    exported, preprocessing = metadata.exported, metadata.preprocessing
    upstream, licenses, size = metadata.upstream, exported.licenses, preprocessing.image_size
    exchanged = ", ".join(f"{key} {value}" for key, value in metadata.vit.items())
    rows = [
        ("network", metadata.architecture + (f" with {exchanged}" if exchanged else "")),
        ("paper", exported.paper),
        ("parameters", f"{exported.parameters:,}"),
        ("classes, in order", ", ".join(metadata.classes)),
        ("positive class", metadata.positive_class),
        ("input", f"8-bit RGB, {_RESIZE[preprocessing.resize]} {size} x {size} (bicubic, antialiased)"),
        ("normalisation", f"mean {preprocessing.mean}, SD {preprocessing.std} on the scale 0 to 1"),
        ("temperature", "none" if metadata.temperature is None else str(metadata.temperature)),
        ("initial weights", " ".join(filter(None, (upstream.source, upstream.name)))),
        ("their licence", licenses.first_weights or ("none needed" if upstream.source == "scratch" else "not stated")),
    ]
    if licenses.data:
        rows.append(("trained on", ", ".join(f"{name} ({text})" for name, text in licenses.data.items())))
        rows.append(("recipe", f"{metadata.recipe}, seed {metadata.seed}, {metadata.steps} steps"))
    if measured := metadata.measured:
        figures = [f"{key} {value:.3f}" for key, value in measured.content().items() if isinstance(value, float)]
        tested = f"{measured.images} images in {measured.groups} groups that it had not seen"
        rows.append(("measured", f"{', '.join(figures)} on {tested}; no intervals"))
    versions = {"usvit": exported.usvit_version, **exported.versions}
    rows += [
        ("weights' SHA-256", exported.weights_sha256),
        ("made with", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    return [*rows, ("this export", checked)] if checked else rows
