"""Test the weights ``phantom`` with the head that they were trained with on BUSI, without any training on patients.

    python -m benchmarks.phantom_weights --data-root DATA

The benchmark prints the AUC on all images, with an interval that counts groups.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from usvit import metrics
from usvit.config import build_config, load_recipe
from usvit.data.datasets import open_manifest, roots_from
from usvit.data.loading import PixelStore, eval_batches
from usvit.data.transforms import Preprocessing
from usvit.experiments.base import new_model_with_report
from usvit.models import find_model, input_statistics, resolve_weights
from usvit.progress import NO_PROGRESS
from usvit.training import predict, resolve_device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder of BUSI")
    print(area_on_patients(parser.parse_args().data_root))


def area_on_patients(data_root: Path) -> str:
    """Return the AUC of malignant images against all others, and against benign ones."""
    chosen_model = {"name": "usvit_small", "image_size": 192}  # the network whose head was trained on phantoms
    config = build_config(load_recipe("usvit_small"), {"data": {"dataset": "busi"}, "model": chosen_model})
    manifest, spec = open_manifest(config.data, roots_from(data_root), NO_PROGRESS), find_model(config.model.name)
    weights = resolve_weights("phantom", spec)
    assert weights.metadata is not None and tuple(weights.metadata.classes or ()) == manifest.classes
    prepared = Preprocessing(config.model.image_size, config.input.resize, *input_statistics(spec, weights))
    fabric = resolve_device(config.device, config.precision).fabric()
    model, _ = new_model_with_report(config, spec, weights, len(manifest.classes), 0)
    model.load_state_dict(
        {name: value.to(model.state_dict()[name].dtype) for name, value in weights.read().tensors.items()}
    )
    with tempfile.TemporaryDirectory() as folder:
        store = PixelStore.build(
            manifest, prepared, memory_gb=4, folder=Path(folder), progress=NO_PROGRESS, with_lesions=False
        )
        batches = eval_batches(store, np.arange(len(store)), 32)
        logits = predict(fabric.setup_module(model), fabric, prepared.normalised, batches).logits
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows, malignant = manifest.usable, manifest.classes.index("malignant")
    said = []
    for name, chosen in (
        ("malignant vs rest", np.ones(len(rows), bool)),
        ("malignant vs benign", rows.label != "normal"),
    ):
        part = rows[np.asarray(chosen)]
        labels = (part.label == "malignant").to_numpy().astype(int)
        said.append(f"{name}: {metrics.auc(labels, probabilities[np.asarray(chosen), malignant], part.group_id)}")
    return "\n".join(said)


if __name__ == "__main__":
    main()
