"""``scaling.json`` and ``shape.json``: the fitted loss by shape and compute, and the best shape for a budget."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from usvit.estimate import Interval
from usvit.records.base import Count, FileRecord, Name, Number, Record, Sha256, Share, Text, key

DimensionName = Literal["width", "depth", "mlp"]
_Positive = Annotated[Number, Field(gt=0)]
_Amount = Annotated[Number, Field(ge=0)]
_Large = Annotated[int, Field(ge=0, le=10**18)]


class ScalingValue(Record):
    """Number with its 95 % bootstrap band."""

    value: Number | None = key("null if the data do not identify it.")
    ci95: Interval | None = key("95 % percentile band of the bootstrap; null if the value is null.")
    reason: Text | None = key("Reason why the value is null.")


class ScalingDimension(Record):
    """One dimension of the shape."""

    name: DimensionName
    values: list[_Positive] = key("Values in the sweep, smallest first.", minItems=3)
    reference: _Positive = key("The value by which the dimension is divided in the fitted form.")
    alpha: _Amount = key("Coefficient of x^(-a).")
    a: _Positive
    beta: _Amount = key("Coefficient of x^b t^(-c).")
    b: _Positive
    exponent: ScalingValue = key("s = c / (a + b): the best value grows with the compute to this power.")


class ScalingPoint(Record):
    """One training of the sweep."""

    row: Text | None = key("Its name in the table.")
    group: Text | None
    shape: dict[DimensionName, _Positive]
    gflops: _Positive = key("Compute of the training, in the unit of the table.")
    loss: _Positive
    fitted: _Positive = key("Loss of the fitted form.")
    weight: Share = key("Weight of the point in the robust fit; 1 unless it is an outlier.")


class ScalingRecord(FileRecord):
    """Fit of the loss as a function of shape and compute, as 'usvit shape fit' writes it.

    The form is f(x, t) = sum_k alpha_k x_k^(-a_k) + (sum_k beta_k x_k^(b_k) + xi) t^(-c) + eps (Alabdulmohsin et al.
    2023), where x_k and t are divided by their references.
    """

    KIND: ClassVar[str] = "scaling"
    command: Text
    usvit_version: Name
    table: Text = key("The table that was read.")
    table_sha256: Sha256
    dimensions: list[ScalingDimension] = key(minItems=1)
    constant: dict[DimensionName, _Positive] = key("Dimensions that do not vary in the sweep, with their values.")
    compute_reference: _Positive
    compute: Interval = key("Smallest and largest compute in the sweep.")
    n_budgets: Count = key("Number of different values of the compute, those within 5 % as one.")
    xi: _Amount
    c: ScalingValue = key("The data exponent.")
    eps: ScalingValue = key("The irreducible loss.")
    residual_sd: _Amount = key("Robust standard deviation of the relative residuals (f - y) / y.")
    huber: _Positive = key("Residuals beyond this number of standard deviations have less weight.")
    n_outliers: Count = key("Points with a weight below 1.")
    seed: Count
    parameters: list[Number] = key(
        "All fitted parameters, in the order of the draws; 'dimensions' says which of them the data identify."
    )
    draws: list[list[Number]] = key(
        "Bootstrap draws of the parameters: alpha, a, beta and b of all dimensions, then xi, c and eps."
    )
    points: list[ScalingPoint] = key(minItems=1)
    warnings: list[Text]


class ShapeValue(Record):
    """One dimension of the predicted shape."""

    value: _Positive
    ci95: Interval | None = key("95 % band from the bootstrap of the fit.")
    inside: bool = key("true if the value lies within the values of the sweep.")
    fixed: bool = key("true if the value was given, not predicted.")


class NamedShape(Record):
    """A shape with what its network costs and is predicted to reach."""

    name: Name
    shape: dict[DimensionName, Count]
    heads: Count
    params: _Large = key("Parameters without the head.")
    macs: _Large = key("MACs of one image without the head.")
    images: _Amount = key("Number of images on which the compute trains it.")
    predicted_loss: ScalingValue
    measured_loss: Number | None = key("Loss after a training with this compute, if it was trained.")


class ShapeRecord(FileRecord):
    """The best shape for a compute budget, as 'usvit shape predict' writes it."""

    KIND: ClassVar[str] = "shape"
    command: Text
    usvit_version: Name
    fit: Text = key("The scaling.json that was read.")
    fit_sha256: Sha256
    gflops: _Positive = key("The compute budget of the training in GFLOPs, forward and backward.")
    method: Literal["surface", "start"] = key(
        "surface: the minimum of the fitted form; start: a small optimal shape, scaled by the exponents."
    )
    start: dict[DimensionName, _Positive] | None = key("The shape that was scaled.")
    start_gflops: _Positive | None = key("The compute for which it is optimal.")
    ideal: dict[DimensionName, ShapeValue]
    chosen: NamedShape = key("The ideal shape, rounded to a network that can be trained.")
    neighbours: list[NamedShape] = key("Shapes that differ in one dimension.")
    others: list[NamedShape] = key("Printed shapes, for comparison.")
    verdict: Text | None = key("Whether the chosen shape was best of those that were trained.")
    warnings: list[Text]
