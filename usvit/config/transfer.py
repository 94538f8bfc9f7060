"""The configuration of a transfer: from upstream weights to other images."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from usvit.config.pretrain import PretrainConfig, SourceConfig

How = Literal["fewshot", "linear", "knn", "retrieval", "finetune"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class TransferSourceConfig(SourceConfig):
    """Which images a network is transferred to. Choices are made on ``val``, or on what ``val_share`` keeps back."""

    name: str = "data"
    val_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the training images kept back to choose on, drawn by the seed; 0 where ``val`` names a part."""

    @model_validator(mode="before")
    @classmethod
    def _one_validation(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("val") is not None:
            return {"val_share": 0.0, **given}
        return given


class TransferConfig(PretrainConfig):
    """Everything that decides a transfer's result: how it is made, and, for ``finetune``, the training of a cell.

    A recipe of ``configs/transfer`` has these keys, and beside them ``sweep`` and ``datasets``
    (``usvit.config.sweep``), which become ``cells``.
    """

    how: How = "fewshot"
    """``fewshot`` (regularised least squares on a few images a class), ``linear`` (logistic regression), ``knn`` or
    ``retrieval`` (``knn`` by the embedding of a run of Grafit; with ``source.coarse``, from coarse classes to fine
    ones), all on frozen features; or ``finetune``, ``model.tune`` of the network."""
    source: TransferSourceConfig = TransferSourceConfig()
    test: str | None = "test"
    """The part of the source that is tested, once; of ``data``, the test part of a hold-out (``split``). null, only of
    ``retrieval``, which chooses nothing on them: the images of ``source.val`` or ``source.val_share``."""
    final: str | None = None
    """The part of the source on which the chosen is trained again before it is tested, such as ``train800val200``;
    ``train`` where ``source.val_share`` kept images back. null: what was chosen is tested as it is."""
    upstream: tuple[str, ...] = ()
    """Several first weights to choose among, in place of ``model.weights`` (Steiner et al. 2022, section 4.5)."""
    cells: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """``finetune``: name of each cell of the sweep -> its settings; none: one cell, with the settings as they are."""
    shots: tuple[Count, ...] = (5, 10, 25)
    """``fewshot``: images of each class (Dosovitskiy et al. 2021; Steiner et al. 2022)."""
    draws: Count = 5
    """``fewshot``: how often the images are drawn, each time by a seed of its own."""
    l2: tuple[Positive, ...] | None = None
    """Strength of the regularisation to choose among, on validation images; one value is taken as it is. null: 2^-10
    to 2^9 for ``fewshot`` (on the sum of squares), 10^-6 to 10 for ``linear`` (on the mean cross-entropy)."""
    k: tuple[Count, ...] = (10, 15, 20, 25, 30)
    """``knn``, ``retrieval``: neighbours to choose among, on the training images, each judged by the others."""
    sigma: Positive = 0.05
    """``knn``, ``retrieval``: temperature of the neighbours' weights, exp(cosine / sigma)."""
    leaks: Literal["refuse", "drop"] = "refuse"
    """Test images whose very pixels are among the training images or those that the first weights saw: ``refuse`` to
    go on, or ``drop`` them from the test and say how many."""

    @model_validator(mode="after")
    def _can_be_done(self) -> "TransferConfig":
        if self.objective != "supervised":
            raise ValueError(f"a transfer learns classes: objective {self.objective} belongs to usvit pretrain")
        if self.how == "finetune" and self.source.name == "data":
            raise ValueError(
                "networks are fine-tuned on a data card's images by 'usvit cv --dataset D --weights W', in folds; "
                "fewshot, linear and knn work on them here"
            )
        if self.how != "finetune" and self.cells:
            raise ValueError(f"cells are of finetune; {self.how} has none")
        if self.source.exclude and self.how != "finetune":
            raise ValueError("source.exclude is of what a network learns from: of usvit pretrain, and of finetune")
        if self.test is None and (self.how != "retrieval" or not (self.source.val or self.source.val_share)):
            raise ValueError(
                "test is null, which only retrieval knows: it then searches with the images of source.val or "
                "source.val_share. Set test to a part of the source"
            )
        return self
