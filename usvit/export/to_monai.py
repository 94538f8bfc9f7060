"""A MONAI bundle: what ``python -m monai.bundle run`` executes, with usvit's own preprocessing and network.

Layout and keys: MONAI Bundle Specification (mb_specification), and the bundles of MONAI's model zoo.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import usvit
from usvit.data.images import read_image
from usvit.errors import UsvitError
from usvit.export.check import Checked, quiet, refuse_difference, write_phantom_image
from usvit.export.source import Source
from usvit.files import write_json, write_text

NEEDS = ("monai", "fire")
SAME = 1e-6
"""Scores of the bundle and of usvit: the same code on the same machine, but for the size of the batch."""

# Only its name is in the file: MONAI's verify_metadata fetches it, usvit does not.
_SCHEMA = "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/meta_schema_20240725.json"

_MEANT = ("$", "@", "%")
"""First letters by which MONAI's configuration knows an expression, a reference and a macro."""

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


def write_bundle(source: Source, folder: Path) -> Checked:
    """Write a bundle's configuration and weights, and see that MONAI computes with it what usvit computes.

    Args:
        source: the network.
        folder: to write into; ``model_card`` and ``model.json`` are written by the caller.

    Raises:
        UsvitError: the results differ, or a class has a name that MONAI would take for an expression.
    """
    if odd := [name for name in source.classes if name.startswith(_MEANT)]:
        raise UsvitError(
            f"MONAI takes a text that begins with {' '.join(_MEANT)} for code: rename the class {odd[0]!r}."
        )
    write_json(folder / "configs" / "metadata.json", metadata(source.passport))
    write_json(folder / "configs" / "inference.json", inference(source.passport))
    write_text(folder / "configs" / "logging.conf", _LOGGING)
    write_text(folder / "LICENSE", license_text(source.passport))
    models = folder / "models"
    models.mkdir()
    source.write_passport(models, with_novelty=False)
    (models / "model.safetensors").write_bytes(source.weights)
    # MONAI's specification asks for this very file; usvit reads the other.
    torch.save({key: value.detach().cpu() for key, value in source.model.state_dict().items()}, models / "model.pt")
    return _compared(source, folder)


def inference(passport: dict[str, Any]) -> dict[str, Any]:
    """``inference.json``, by the names that MONAI's tools look for (monai.bundle.properties)."""
    preprocessing = passport["preprocessing"]
    return {
        "bundle_root": ".",
        "input": None,
        "dataset_dir": "@input",
        "output_dir": "$str(@bundle_root) + '/eval'",
        "device": "$torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "network_def": {
            "_target_": "usvit.export.bundle.network",
            "architecture": passport["architecture"],
            "n_classes": len(passport["classes"]),
            "image_size": preprocessing["image_size"],
            "vit": passport.get("vit") or {},
        },
        "network": {
            "_target_": "usvit.export.bundle.with_weights",
            "network": "@network_def",
            "file": "$str(@bundle_root) + '/models/model.safetensors'",
            "device": "@device",
        },
        "datalist": {"_target_": "usvit.export.bundle.find_images", "source": "@dataset_dir"},
        "preprocessing": {"_target_": "usvit.export.bundle.Preprocess", **preprocessing},
        "dataset": {"_target_": "Dataset", "data": "@datalist", "transform": "@preprocessing"},
        "inferer": {"_target_": "SimpleInferer"},
        "postprocessing": {
            "_target_": "usvit.export.bundle.Probabilities",
            "temperature": float(passport.get("temperature") or 1.0),
        },
        "evaluator": {
            "_target_": "usvit.export.bundle.Scorer",
            "source": "@dataset_dir",
            "preprocessing": "@preprocessing",
            "network": "@network",
            "inferer": "@inferer",
            "postprocessing": "@postprocessing",
            "classes": passport["classes"],
            "device": "@device",
            "output_dir": "@output_dir",
        },
        "run": ["$@evaluator.main()"],
    }


def metadata(passport: dict[str, Any]) -> dict[str, Any]:
    """``metadata.json``: the keys that the specification demands, and those of MONAI's zoo."""
    preprocessing, exported = passport["preprocessing"], passport["exported"]
    size = preprocessing["image_size"]
    low = min(-mean / std for mean, std in zip(preprocessing["mean"], preprocessing["std"], strict=True))
    high = max((1 - mean) / std for mean, std in zip(preprocessing["mean"], preprocessing["std"], strict=True))
    needs = {"usvit": usvit.__version__, "timm": exported["versions"]["timm"]}
    classes = " / ".join(passport["classes"])
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
        "name": f"{passport['architecture']} on breast ultrasound",
        "task": f"Classification of breast-ultrasound images: {classes}",
        "description": f"{passport['architecture']} ({exported['paper']}); images are read and resized by usvit.",
        "authors": "see docs/README.md",
        "copyright": "see LICENSE",
        "data_source": ", ".join(exported["licenses"]["data"]) or "none: the head is untrained",
        "data_type": "PNG, JPEG, TIFF, BMP or DICOM",
        "intended_use": passport["intended_use"],
        "positive_class": passport["positive_class"],
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
                    "num_channels": len(passport["classes"]),
                    "spatial_shape": [],
                    "value_range": [],
                    "channel_def": {str(k): name for k, name in enumerate(passport["classes"])},
                    **tensor,
                }
            },
        },
    }


def license_text(passport: dict[str, Any]) -> str:
    """What the weights' licence hangs on; usvit cannot give one for weights that others trained."""
    licenses, upstream = passport["exported"]["licenses"], passport.get("upstream") or {}
    first = " ".join(filter(None, (upstream.get("name") or upstream.get("source"), licenses["first_weights"])))
    lines = [
        "The configuration files of this bundle were written by usvit (Apache-2.0).",
        "",
        "The weights (models/) are the work of who trained them. What they were made from:",
        f"- first weights: {first or 'not stated'}",
        *(f"- training images: {name}, {text}" for name, text in licenses["data"].items()),
        "",
        "Who passes them on must keep to each of these. For research only; not a medical device.",
    ]
    return "\n".join(lines) + "\n"


def _compared(source: Source, folder: Path) -> Checked:
    with tempfile.TemporaryDirectory() as place:
        picture = write_phantom_image(Path(place))
        scores = _run(folder, picture, Path(place) / "eval")
        pixels = source.preprocessing.resized(read_image(picture))
    expected = source.predict(torch.tensor(pixels)[None])
    got = torch.tensor([scores[f"logit_{name}"] for name in source.classes], dtype=torch.float64).T
    by = f"checked by monai.bundle {version('monai')} on a phantom"
    checked = Checked(by, float((got - expected).abs().max()), float(expected.abs().max()))
    refuse_difference(checked, SAME)
    return checked


def _run(folder: Path, picture: Path, out: Path) -> dict[str, list[float]]:
    """What ``monai.bundle run`` does, in this process."""
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
            raise UsvitError(f"This version of MONAI asks for more than the bundle has ({missing}): please report it.")
        (scores,) = workflow.run()
    return {name: scores[name].tolist() for name in scores.columns}
