"""Export as ONNX: one graph from the resized 8-bit image to probabilities.

The graph takes uint8 and normalises it, so that mean and standard deviation cannot be forgotten or swapped. Resizing is
not part of it, because no ONNX operator resizes like Pillow (bicubic, with antialiasing).
"""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import usvit
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.exporting.exportable import ExportSource
from usvit.exporting.verification import TOLERANCE, Checked, check_pixels, quiet, refuse_difference
from usvit.records import ExportedMetadata

NEEDS = ("onnx", "onnxscript", "onnxruntime")
INPUT, OUTPUTS = "image", ("logits", "probabilities")
_OPSET = 18
"""Opset of 2022, which the runtimes in hospitals and browsers support."""
ONE_FILE_BYTES = 1_800_000_000
"""Weights above this size are stored in ``model.onnx.data`` beside the graph; a protobuf file is limited to 2 GiB."""


class Graph(nn.Module):
    """The exported graph: (B, S, S, 3) uint8 -> (B, K) logits and (B, K) probabilities, both float32."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, preprocessing: Preprocessing, temperature: float):
        super().__init__()
        self.model, self.temperature = model, temperature
        self.register_buffer("mean", torch.tensor(preprocessing.mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(preprocessing.std).view(1, 3, 1, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        inputs = (image.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std
        logits = self.model(inputs)
        return logits, (logits / self.temperature).softmax(1)


def write_onnx(source: ExportSource, folder: Path) -> Checked:
    """Write ``model.onnx``, and verify that onnxruntime gives the predictions of PyTorch.

    Args:
        source: the network.
        folder: folder to write into.

    Raises:
        UsvitError: a part of the network cannot be expressed in ONNX, or the results differ.
    """
    pixels = check_pixels(source.preprocessing)
    if source.predict(pixels).any():
        return _write(source, source.model, folder, pixels)
    # A new head of zeros would hide differences in the layers before it, so a random head is verified first.
    checked = _write(source, _with_random_head(source.model), folder, pixels)
    _write(source, source.model, folder, pixels)
    return checked


def _write(source: ExportSource, model: nn.Module, folder: Path, pixels: Tensor) -> Checked:
    graph = Graph(model, source.preprocessing, source.temperature).eval()
    program = _exported(graph, pixels[:2], source.metadata.architecture)
    _strip(program.model)
    program.model.metadata_props.update(describe(source.metadata))
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    program.save(str(folder / "model.onnx"), external_data=size > ONE_FILE_BYTES)
    del program
    with torch.inference_mode():
        expected = graph(pixels)[0]
    return _compared(folder / "model.onnx", pixels, expected)


def describe(metadata: ExportedMetadata) -> dict[str, str]:
    """Return the ``metadata_props`` of the graph, for users who have only the file."""
    return {
        "architecture": metadata.architecture,
        "classes": json.dumps(metadata.classes, ensure_ascii=False),
        "positive_class": metadata.positive_class,
        "preprocessing": json.dumps(metadata.preprocessing.content()),
        "temperature": json.dumps(metadata.temperature),
        "licenses": json.dumps(metadata.exported.licenses.content(), ensure_ascii=False),
        "weights_sha256": metadata.exported.weights_sha256,
        "intended_use": metadata.intended_use,
        "usvit_version": usvit.__version__,
    }


def _exported(graph: Graph, example: Tensor, name: str) -> Any:
    """Return the ONNX program of a graph, with a dynamic batch size."""
    try:
        # Faster attention kernels have other memory layouts, which the exporter misinterprets.
        with quiet(), sdpa_kernel(SDPBackend.MATH):
            return torch.onnx.export(
                graph,
                (example,),
                dynamo=True,
                opset_version=_OPSET,
                input_names=[INPUT],
                output_names=list(OUTPUTS),
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = next((cause for cause in _causes(error) if str(cause).strip()), error)
        raise UsvitError(
            f"The network {name} has a part that cannot be exported to ONNX "
            f"({type(reason).__name__}: {' '.join(str(reason).split())[:200]}). Export it as safetensors or monai."
        ) from error


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and its causes, the first cause first."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    return chain[::-1]


def _strip(model: Any) -> None:
    """Remove the exporter's debugging metadata, which contains paths of this machine."""
    graphs = [model.graph, *model.functions.values()]
    for graph in graphs:
        graph.metadata_props.clear()
        for value in (*graph.inputs, *graph.outputs, *getattr(graph, "initializers", {}).values()):
            value.metadata_props.clear()
        for node in graph.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()


def _compared(path: Path, pixels: Tensor, expected: Tensor) -> Checked:
    import onnx
    import onnxruntime

    # One at a time and all at once, because the batch size must be dynamic.
    batches = [batch.numpy() for batch in (*pixels.split(1), pixels)]
    try:
        onnx.checker.check_model(str(path))
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        got = [session.run([OUTPUTS[0]], {INPUT: batch})[0] for batch in batches]
    except Exception as error:  # both libraries raise many types
        raise UsvitError(
            f"onnxruntime {onnxruntime.__version__} cannot compute the exported graph "
            f"({' '.join(str(error).split())[:200]}). Nothing was written. Export as safetensors or monai."
        ) from error
    difference = (torch.cat([torch.from_numpy(logits) for logits in got]) - torch.cat([expected, expected])).abs().max()
    by = f"checked in onnxruntime {onnxruntime.__version__} on {len(pixels) - 1} random images and a phantom"
    checked = Checked(by, float(difference), float(expected.abs().max()))
    refuse_difference(checked, TOLERANCE)
    return checked


def _with_random_head(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    head = other.get_classifier()  # type: ignore[operator]
    for classifier in head if isinstance(head, tuple) else (head,):
        for parameter in classifier.parameters():
            nn.init.normal_(parameter, std=0.02)
    return other
