"""Preprocessing of test images for weights: that of the run that made them, or of timm's configuration."""

from typing import Literal

from pydantic import Field

from usvit.config.views import ViewsConfig
from usvit.data.transforms import Preprocessing, TestResize
from usvit.errors import UsvitError
from usvit.models.build import input_statistics, timm_test_config
from usvit.models.spec import ModelSpec
from usvit.models.trained_model import UPSTREAM
from usvit.models.weights import Weights
from usvit.records import RunRecord, load_run_record
from usvit.records.base import FROZEN
from usvit.records.model import TestPreprocessing

Interpolation = Literal["bicubic", "bilinear"]


class EvaluationView(TestPreprocessing):
    """Conversion of a test image to the input of one classifier: the entry of ``test.json``, and the crop beside it."""

    model_config = FROZEN
    crop: Literal["tissue", "whole"] = Field("tissue", exclude=True)
    """``Preprocessing.crop``, for the images of a data card; the entry does not contain it."""

    @property
    def normalisation(self) -> Preprocessing:
        (red, green, blue), (of_red, of_green, of_blue) = self.mean, self.std
        return Preprocessing(self.image_size, "squash", (red, green, blue), (of_red, of_green, of_blue))


def view_of(
    spec: ModelSpec,
    weights: Weights,
    *,
    image_size: int | None = None,
    test_crop: float | None = None,
    interpolation: Interpolation | None = None,
) -> EvaluationView:
    """Return the preprocessing of test images for a network.

    Args:
        spec: The network.
        weights: Its weights.
        image_size, test_crop, interpolation: Changes of the preprocessing of the weights; None for none.

    Raises:
        UsvitError: timm tests these weights in a way that usvit does not have.
    """
    changed = {"image_size": image_size, "test_crop": test_crop, "interpolation": interpolation}
    named = [key for key, value in changed.items() if value is not None]
    metadata = weights.metadata
    mean, std = input_statistics(spec, weights)
    crop: Literal["tissue", "whole"] = "tissue"
    if metadata is not None:
        own = metadata.preprocessing
        own_interpolation: Interpolation = "bicubic"
        size, crop, origin = own.image_size, own.crop, "the metadata of the run"
        resize: TestResize = "pad" if own.resize == "pad" else "squash"
        own_crop = 1.0
        if metadata.stage == UPSTREAM:
            resize, own_crop = "short_side", _crop_of_run(weights)
    else:
        size, resize, own_crop, own_interpolation, origin = _of_timm(spec, weights)
    if test_crop is not None:
        resize = "short_side"
    return EvaluationView(
        image_size=image_size or size,
        resize=resize,
        test_crop=own_crop if test_crop is None else test_crop,
        interpolation=interpolation or own_interpolation,
        mean=list(mean),
        std=list(std),
        origin=origin + (f"; changed by a setting: {', '.join(named)}" if named else ""),
        crop=crop,
    )


def run_of_weights(weights: Weights) -> RunRecord | None:
    """Return the ``run.json`` of the run that made the weights; None if they were copied out of it."""
    folder = None if weights.path is None else weights.path.absolute().parent.parent
    return None if folder is None or not (folder / "run.json").is_file() else load_run_record(folder)


def _crop_of_run(weights: Weights) -> float:
    """Return ``views.test_crop`` of the pre-training or transfer that made the weights, or its default."""
    run = run_of_weights(weights)
    views = None if run is None else run.config.as_written().get("views")
    value = views.get("test_crop") if isinstance(views, dict) else None
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else ViewsConfig().test_crop


def _of_timm(spec: ModelSpec, weights: Weights) -> tuple[int, TestResize, float, Interpolation, str]:
    """Return size, resizing, crop, interpolation and origin as timm tests these weights."""
    found = timm_test_config(spec, weights)
    if found is None:
        return spec.image_size, "short_side", ViewsConfig().test_crop, "bicubic", "usvit's defaults for this network"
    modes: dict[str, TestResize] = {"center": "short_side", "squash": "squash"}
    known: dict[str, Interpolation] = {"bicubic": "bicubic", "bilinear": "bilinear"}
    mode, interpolation = str(found["crop_mode"] or "center"), str(found["interpolation"])
    if mode not in modes or interpolation not in known:
        raise UsvitError(
            f"timm tests the weights of {spec.name} with crop mode {mode} and interpolation {interpolation}, which "
            "usvit does not have. Set views.test_crop and views.interpolation to test them in another way."
        )
    origin = "timm's configuration of these weights"
    if weights.source not in ("hub", "package"):
        origin = "timm's configuration of this network's recommended weights"
    return int(found["input_size"][-1]), modes[mode], float(found["crop_pct"]), known[interpolation], origin
