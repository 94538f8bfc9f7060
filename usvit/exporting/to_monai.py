"""Export as a MONAI bundle for ``python -m monai.bundle run``, with usvit's own preprocessing and network.

Layout and keys: MONAI Bundle Specification (mb_specification), and the bundles of MONAI's model zoo.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path

import torch

import usvit
from usvit.data.io import PICTURE_NAMES, read_image
from usvit.errors import UsvitError
from usvit.exporting.exportable import ExportSource
from usvit.exporting.verification import Checked, quiet, refuse_difference, write_phantom_image
from usvit.files import write_json, write_text
from usvit.plain_data import Json
from usvit.records import ExportedMetadata

NEEDS = ("monai", "fire")
_SAME = 1e-6
"""Tolerance between the bundle and usvit, which run the same code with different batch sizes."""

# Only the address is in the file. MONAI's verify_metadata downloads the schema; usvit does not.
_SCHEMA = "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json"

_MEANT = ("$", "@", "%")
"""First characters of an expression, a reference and a macro in MONAI's configuration."""

_LOGGING = """\
[loggers]
keys=root

[handlers]
keys=console

[formatters]
keys=plain

[logger_root]
level=WARNING
handlers=console

[handler_console]
class=StreamHandler
level=WARNING
formatter=plain
args=(sys.stderr,)

[formatter_plain]
format=%(levelname)s: %(message)s
"""


def write_bundle(source: ExportSource, folder: Path) -> Checked:
    """Write the configuration and weights of a bundle, and verify that MONAI gives the predictions of usvit.

    Args:
        source: the network.
        folder: folder to write into; the caller writes the model card.

    Raises:
        UsvitError: the results differ, or MONAI would interpret the name of a class as an expression.
    """
    if odd := [name for name in source.classes if name.startswith(_MEANT)]:
        raise UsvitError(
            f"MONAI interprets a text that begins with {' '.join(_MEANT)} as code. Rename the class {odd[0]!r}."
        )
    write_json(folder / "configs" / "metadata.json", _bundle_metadata(source.metadata))
    write_json(folder / "configs" / "inference.json", inference(source.metadata))
    write_text(folder / "configs" / "logging.conf", _LOGGING)
    write_text(folder / "LICENSE", _license_text(source.metadata))
    models = folder / "models"
    models.mkdir()
    source.write_metadata(models, with_features=False)
    (models / "model.safetensors").write_bytes(source.weights)
    # MONAI's specification requires model.pt; usvit reads model.safetensors.
    torch.save({key: value.detach().cpu() for key, value in source.model.state_dict().items()}, models / "model.pt")
    return _compared(source, folder)


def inference(metadata: ExportedMetadata) -> Json:
    """Return the content of ``inference.json``, with the names that MONAI expects (monai.bundle.properties)."""
    return {
        "bundle_root": ".",
        "input": None,
        "dataset_dir": "@input",
        "output_dir": "$str(@bundle_root) + '/eval'",
        "device": "$torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "network_def": {
            "_target_": "usvit.exporting.bundle.network",
            "architecture": metadata.architecture,
            "n_classes": len(metadata.classes),
            "image_size": metadata.preprocessing.image_size,
            "vit": metadata.vit,
            **({"features": metadata.features} if metadata.features else {}),
        },
        "network": {
            "_target_": "usvit.exporting.bundle.with_weights",
            "network": "@network_def",
            "file": "$str(@bundle_root) + '/models/model.safetensors'",
            "device": "@device",
        },
        "datalist": {"_target_": "usvit.exporting.bundle.find_images", "source": "@dataset_dir"},
        "preprocessing": {"_target_": "usvit.exporting.bundle.Preprocess", **metadata.preprocessing.content()},
        "dataset": {"_target_": "Dataset", "data": "@datalist", "transform": "@preprocessing"},
        "inferer": {"_target_": "SimpleInferer"},
        "postprocessing": {
            "_target_": "usvit.exporting.bundle.Probabilities",
            "temperature": metadata.temperature or 1.0,
        },
        "evaluator": {
            "_target_": "usvit.exporting.bundle.Scorer",
            "source": "@dataset_dir",
            "preprocessing": "@preprocessing",
            "network": "@network",
            "inferer": "@inferer",
            "postprocessing": "@postprocessing",
            "classes": metadata.classes,
            "device": "@device",
            "output_dir": "@output_dir",
        },
        "run": ["$@evaluator.main()"],
    }


def _bundle_metadata(metadata: ExportedMetadata) -> Json:
    """Return the content of ``metadata.json``: the keys required by the specification, and those of MONAI's zoo."""
    preprocessing, exported = metadata.preprocessing, metadata.exported
    size = preprocessing.image_size
    low = min(-mean / std for mean, std in zip(preprocessing.mean, preprocessing.std, strict=True))
    high = max((1 - mean) / std for mean, std in zip(preprocessing.mean, preprocessing.std, strict=True))
    needs = {"usvit": usvit.__version__, "timm": exported.versions["timm"]}
    classes = " / ".join(metadata.classes)
    tensor = {"dtype": "float32", "is_patch_data": False}
    return {
        "schema": _SCHEMA,
        "version": "1.0.0",
        "changelog": {"1.0.0": f"exported by usvit {usvit.__version__}"},
        "monai_version": version("monai"),
        "pytorch_version": version("torch").partition("+")[0],
        "numpy_version": version("numpy"),
        "required_packages_version": needs,
        "supported_apps": {},
        "name": f"{metadata.architecture} on breast ultrasound",
        "task": f"Classification of breast-ultrasound images: {classes}",
        "description": f"{metadata.architecture} ({exported.paper}); images are read and resized by usvit.",
        "authors": "see docs/README.md",
        "copyright": "see LICENSE",
        "data_source": ", ".join(exported.licenses.data) or "none: the head is untrained",
        "data_type": f"DICOM, {PICTURE_NAMES}",
        "intended_use": metadata.intended_use,
        "positive_class": metadata.positive_class,
        "network_data_format": {
            "inputs": {
                "image": {
                    "type": "image",
                    "format": "magnitude",
                    "modality": "US",
                    "num_channels": 3,
                    "spatial_shape": [size, size],
                    "value_range": [round(low, 4), round(high, 4)],
                    "channel_def": {"0": "red", "1": "green", "2": "blue"},
                    **tensor,
                }
            },
            "outputs": {
                "pred": {
                    "type": "probabilities",
                    "format": "classes",
                    "modality": "n/a",
                    "num_channels": len(metadata.classes),
                    "spatial_shape": [],
                    "value_range": [],
                    "channel_def": {str(k): name for k, name in enumerate(metadata.classes)},
                    **tensor,
                }
            },
        },
    }


def _license_text(metadata: ExportedMetadata) -> str:
    """Return the origins of the weights; usvit cannot license weights that others trained."""
    licenses, upstream = metadata.exported.licenses, metadata.upstream
    first = " ".join(filter(None, (upstream.name or upstream.source, licenses.first_weights)))
    lines = [
        "The configuration files of this bundle were written by usvit (Apache-2.0).",
        "",
        "The weights (models/) belong to those who trained them. They were made from:",
        f"- initial weights: {first or 'not stated'}",
        *(f"- training images: {name}, {text}" for name, text in licenses.data.items()),
        "",
        "Redistribution must comply with all of these licences. For research only; not a medical device.",
    ]
    return "\n".join(lines) + "\n"


def _compared(source: ExportSource, folder: Path) -> Checked:
    with tempfile.TemporaryDirectory() as place:
        picture = write_phantom_image(Path(place))
        scores = _run(folder, picture, Path(place) / "eval")
        pixels = source.preprocessing.resized(read_image(picture))
    expected = source.predict(torch.tensor(pixels)[None])
    got = torch.tensor([scores[f"logit_{name}"] for name in source.classes], dtype=torch.float64).T
    by = f"checked by monai.bundle {version('monai')} on a phantom"
    checked = Checked(by, float((got - expected).abs().max()), float(expected.abs().max()))
    refuse_difference(checked, _SAME)
    return checked


def _run(folder: Path, picture: Path, out: Path) -> dict[str, list[float]]:
    """Do what ``monai.bundle run`` does, in this process."""
    with quiet():
        from monai.bundle import ConfigWorkflow

        workflow = ConfigWorkflow(
            config_file=str(folder / "configs" / "inference.json"),
            workflow_type="infer",
            logging_file=False,
            bundle_root=str(folder),
            input=str(picture),
            output_dir=str(out),
            device="cpu",
        )
        workflow.initialize()
        if missing := workflow.check_properties():
            raise UsvitError(
                f"This version of MONAI requires keys that the bundle lacks ({missing}). Please report it."
            )
        (scores,) = workflow.run()
    return {name: scores[name].tolist() for name in scores.columns}
