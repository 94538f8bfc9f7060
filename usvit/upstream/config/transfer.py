"""Configuration of a transfer of upstream weights to other images."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from usvit.config.fields import Option, TextOrPath
from usvit.config.sections import Section
from usvit.plain_data import Settings
from usvit.upstream.config.pretrain import PretrainConfig, SourceConfig
from usvit.upstream.config.segment import SegmentConfig
from usvit.upstream.config.text import TextConfig

How = Literal["fewshot", "linear", "knn", "retrieval", "clusters", "separability", "text", "segment", "finetune"]
VALIDATED = ("fewshot", "linear", "finetune")
"""Methods that choose between settings on validation images."""
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class TransferSourceConfig(SourceConfig):
    """Images that a network is transferred to. Choices are made on ``val``, which can be a split of another data set
    (``val_source``), or on the images that ``val_share`` holds out."""

    name: str = "data"
    val_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the training images to hold out for validation, drawn with the seed; 0 if ``val`` names a split."""

    @model_validator(mode="before")
    @classmethod
    def _one_validation(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("val") is not None:
            return {"val_share": 0.0, **given}
        return given


class TransferConfig(PretrainConfig):
    """All settings of a transfer: its method, and, for ``finetune``, the training of a cell.

    A recipe of ``configs/transfer`` has these keys, and also ``sweep`` and ``datasets``
    (``usvit.upstream.config.sweep``), which become ``cells``.
    """

    how: How = "fewshot"
    """Method. On frozen features: ``fewshot`` (``probe`` on a few images per class), ``linear``
    (logistic regression), ``knn``, ``retrieval`` (``knn`` with the embedding of a Grafit run; with ``source.coarse``,
    from coarse classes to fine ones), ``clusters`` (k-means, whose clusters are written as labels for
    ``source.labels``: ClusterFit), ``separability`` (of random halves of the classes), or ``text`` (a text tower is
    trained against the features: LiT). ``segment`` trains a head for the class of each pixel in the folds of a data
    card with masks. Otherwise ``finetune``, which trains the layers that ``model.tune`` selects."""
    source: TransferSourceConfig = TransferSourceConfig()
    test: str | None = "test"
    """Split of the source that is tested, once; for ``data``, the test split of a hold-out (``split``). null, for
    ``retrieval`` only: the images of ``source.val`` or ``source.val_share``, on which retrieval chooses nothing."""
    fine: str | None = None
    """``retrieval``: the classes that are searched for, named as for ``source.coarse``, such as ``order`` of
    ``inat18``; null: the data set's own. It may be coarser than the classes that the network was trained on."""
    final: str | None = None
    """Split of the source on which the chosen setting is trained again before the test, such as ``train800val200``, or
    ``train`` if ``source.val_share`` held images out. null: the chosen network is tested without further training."""
    upstream: tuple[str, ...] = ()
    """Several initial weights to choose from, instead of ``model.weights`` (Steiner et al. 2022, section 4.5)."""
    cells: dict[str, Settings] = Field(default_factory=dict)
    """``finetune``: name of each cell of the sweep -> its settings. If empty, there is one cell with these settings."""
    trials: tuple[Count, ...] = ()
    """``finetune``: numbers k of trials of a random search that is simulated over the cells (Steiner et al. 2022,
    Figure 2): every cell is tested, not only the chosen one, and a line for each k states the test accuracy of the best
    of k random cells on validation images (of all, if there are fewer). Empty: only the chosen cell is tested."""
    shots: tuple[Count, ...] = (5, 10, 25)
    """``fewshot``: number of images per class (Dosovitskiy et al. 2021; Steiner et al. 2022)."""
    probe: Literal["least_squares", "logistic", "neighbours"] = "least_squares"
    """``fewshot``: classifier on these images: regularised least squares (Dosovitskiy et al. 2021), logistic
    regression, or nearest neighbours, whose number is one of ``k``, or all images if they are fewer. Validation images
    choose the strength of the first two, and the number of neighbours."""
    draws: Count = 5
    """``fewshot``: number of random draws of the images, each with a different seed. ``separability``: number of random
    splits of the classes."""
    clusters: Annotated[int, Field(ge=2)] = 1500
    """``clusters``: number of clusters (thesis: 15000 for ImageNet, 1500 for CIFAR-100)."""
    l2: tuple[Positive, ...] | None = None
    """Strengths of the regularisation to choose from on validation images; a single value is used without a choice.
    null: 2^-10 to 2^9 for least squares (on the sum of squares), 10^-6 to 10 for logistic regression (on the mean
    cross-entropy). ``separability`` uses the first."""
    k: tuple[Count, ...] = (10, 15, 20, 25, 30)
    """``knn``, ``retrieval``: numbers of neighbours to choose from, by leave-one-out on the training images;
    ``probe=neighbours``: on validation images."""
    sigma: Positive = 0.05
    """``knn``, ``retrieval``, ``probe=neighbours``: temperature of the neighbours' weights, exp(cosine / sigma)."""
    embedding: Literal["projector", "trunk"] = "projector"
    """``retrieval``: vectors of a run of Grafit that are compared: the embedding after the ``projector``, or the
    features of its ``trunk``, as for a loss without a kNN head (thesis, Table 2.7, without P)."""
    feature_tables: bool = False
    """``knn``, ``retrieval``: also write ``neighbours.csv`` (the ten nearest training images of each test image),
    ``pca.csv`` (cumulative energy of the components of the training features) and ``tsne.csv`` (a t-SNE of the test
    features), as in Figures 2.1 and 2.5 to 2.9 of the thesis."""
    text: TextConfig = TextConfig()
    """``text``: the texts and the text tower."""
    segment: SegmentConfig = SegmentConfig()
    """``segment``: the head and the classes of pixels."""
    leaks: Literal["refuse", "drop"] = "refuse"
    """Treatment of test images that are pixel-identical to training images, or to images that the initial weights were
    trained on: ``refuse`` stops with an error; ``drop`` removes them from the test and reports their number."""
    allow_contaminated: bool = False
    """Test on data sets that a foundation model behind the initial weights was pre-trained on, by its published list.
    ``false`` refuses them; ``true`` tests them, and every record and page says so."""

    @model_validator(mode="after")
    def _can_be_segmented(self) -> "TransferConfig":
        if self.how != "segment":
            return self
        settings, batch = self.segment, self.train.micro_batch or self.train.batch_size
        for key, value, wrong, wanted in (
            (
                "source.name",
                self.source.name,
                self.source.name != "data",
                "data, and name --dataset",
            ),
            ("model.tune", self.model.tune, self.model.tune not in ("full", "head"), "full or head"),
            ("upstream", list(self.upstream), bool(self.upstream), "[]: one network is trained at a time"),
            ("leaks", self.leaks, self.leaks == "drop", "refuse"),
            ("segment.peer", settings.peer, settings.peer == settings.head, "another head than segment.head"),
            (
                "segment.table",
                settings.table,
                settings.table is not None and "mask_rcnn" in (settings.head, settings.peer),
                "null: mask_rcnn outlines lesions alone",
            ),
            ("train.batch_size", batch, "upernet" in (settings.head, settings.peer) and batch < 2, "2 or more"),
        ):
            if wrong:
                raise ValueError(f"segment does not work with {key}={value}: set {key} to {wanted}")
        return self

    @model_validator(mode="after")
    def _can_be_done(self) -> "TransferConfig":
        if self.objective != "supervised":
            raise ValueError(f"a transfer trains on classes: use the objective {self.objective} with usvit pretrain")
        if self.model.layer_scale_from is not None:
            raise ValueError(
                "model.layer_scale_from belongs to usvit pretrain: a transfer has the values of its weights"
            )
        if self.how == "finetune" and self.source.name == "data":
            raise ValueError(
                "usvit transfer does not fine-tune on the images of a data card: use 'usvit cv --dataset D --weights "
                "W', or one of fewshot, linear and knn"
            )
        if self.how != "finetune" and self.cells:
            raise ValueError(f"only finetune has cells; {self.how} does not")
        if self.how != "finetune" and self.trials:
            raise ValueError(f"trials are cells of finetune, and {self.how} has none: set trials to []")
        if self.source.exclude:
            raise ValueError("source.exclude belongs to 'usvit pretrain': a transfer leaves no image out. Remove it")
        if self.fine is not None and self.how != "retrieval":
            raise ValueError(f"fine belongs to retrieval: for {self.how}, name the tested classes in source.coarse")
        if self.test is None and (self.how != "retrieval" or not (self.source.val or self.source.val_share)):
            raise ValueError(
                "test is null, which is only allowed for retrieval, where source.val or source.val_share then gives "
                "the query images. Set test to a split of the source"
            )
        return self


class TransferArguments(Section):
    """What a transfer starts from; None: as the recipe says."""

    source: Annotated[str | None, Option(metavar="S")] = None
    """Images: a name of ``usvit pretrain --list-sources``, such as cifar10 or folder."""
    dataset: Annotated[str | None, Option(metavar="D[+D]")] = None
    """Data set, split into a hold-out by patients, to use instead of ``source``. (default: the phantom)"""
    recipe: Annotated[TextOrPath, Option(metavar="NAME|FILE")] = None
    """A recipe of ``usvit recipes``, or a YAML file. (default: none)"""
    model: Annotated[str | None, Option(metavar="M")] = None
    """A name from 'usvit models list', or timm:NAME. (default: that of the run in ``weights``, or the recipe's)"""
    cell: Annotated[str | None, Option(metavar="NAME")] = None
    """With finetune, one cell of the recipe's sweep instead of all."""
    seed: int | None = None
    """Seed of the choices, weights, order and augmentation. (default: the recipe's, usually 0)"""
