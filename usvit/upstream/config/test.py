"""Configuration of a test of fixed classifiers, which trains nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from usvit.config.fields import Option
from usvit.config.sections import DataConfig, Section, ViTConfig

HeadRule = Literal["joint", "class", "distilled", "logits"]


class TestModelConfig(Section):
    """Changes of the classifiers' own input and shape."""

    image_size: Annotated[int, Field(ge=32, le=2048)] | None = None
    """Side of the square input, in pixels; null: that of the weights."""
    vit: ViTConfig = ViTConfig()
    """Parts of the shape of a ViT whose weights have no metadata; those of a run are in its metadata."""


class TestViewsConfig(Section):
    """Changes of the classifiers' own cropping of test images."""

    test_crop: Annotated[float, Field(gt=0, le=1)] | None = None
    """The short side is resized to the input size divided by this ratio, then the central square is cropped; null: as
    the weights were tested by those who made them."""
    interpolation: Literal["bicubic", "bilinear"] | None = None
    """Interpolation of the resizing; null: that of the weights."""


class TestSourceConfig(Section):
    """Settings of the sources that need more than a name."""

    path: Annotated[str | None, Option(metavar="DIR|URL")] = None
    """Folder of the source ``folder``; address of ``shards``."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of images of each source, drawn with the seed, every class in proportion; null: all."""
    size: Annotated[int, Field(ge=1)] = 100_000
    """Number of images of ``fractals`` and ``phantom``."""
    classes: Annotated[int, Field(ge=2)] = 1000
    """Classes of ``fractals``."""
    image_size: Annotated[int, Field(ge=32, le=1024)] = 256
    """Side of the images of ``fractals`` and ``phantom``, in pixels."""
    hashes: bool = True
    """Compare the test images with those that the weights have seen. ``false`` is faster, and the result says that
    nothing was compared."""


def _texts(given: str | Path | Sequence[str | Path] | None) -> tuple[str, ...]:
    return tuple(map(str, [given] if isinstance(given, str | Path) else given or ()))


class TestArguments(Section):
    """Images and classifiers of a test, and which outputs decide."""

    __test__: ClassVar[bool] = False

    source: Annotated[
        tuple[str, ...],
        BeforeValidator(_texts, json_schema_input_type=str | Sequence[str] | None),
        Option(metavar="NAME[:SPLIT]", repeated=True),
    ] = ()
    """Labelled images: a name of ``usvit pretrain --list-sources``, with or without a split; can be repeated. Without a
    split: ``test``, otherwise ``val``; for ImageNet-V2 all three variants."""
    dataset: Annotated[str | None, Option(metavar="D[+D]")] = None
    """A data set with a data card, whose images are a further source, ``data``."""
    model: Annotated[str | None, Option(metavar="M")] = None
    """Network of ``weights``: a name from 'usvit models list', or timm:NAME; alone, it stands for the hub's recommended
    weights."""
    weights: Annotated[
        tuple[str, ...],
        BeforeValidator(_texts, json_schema_input_type=str | Path | Sequence[str | Path] | None),
        Option(metavar="W", repeated=True),
    ] = ()
    """A run, hub, hub:UPSTREAM or a file; can be repeated."""
    head: Annotated[
        tuple[str, ...],
        BeforeValidator(_texts, json_schema_input_type=str | Sequence[str] | None),
        Option(metavar="RULE", repeated=True),
    ] = ()
    """For a network with a distillation token: joint (sum of both softmaxes), class, distilled, or logits (mean of
    both, as in timm); can be repeated, each in a row of its own. (default: joint)"""


class TestConfig(Section):
    """All settings of a test of fixed classifiers on labelled images."""

    __test__: ClassVar[bool] = False  # for pytest: this is no class of tests

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of ``source.limit`` and of generated images."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that computes; ``auto``: a GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto``: bfloat16 autocast if the device supports it, otherwise float32."""
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Number of images in a batch."""
    classifiers: tuple[str, ...] = ()
    """What is tested: a run, one of its folds (``RUN/fold-0``), ``MODEL`` (the hub's recommended weights), or
    ``MODEL=WEIGHTS``."""
    sources: tuple[str, ...] = ()
    """What they are tested on: ``NAME`` or ``NAME:SPLIT``."""
    head: tuple[HeadRule, ...] = ("joint",)
    """Which output of a network with a distillation token decides: ``joint`` (the sum of both heads' softmax; thesis,
    section 3.3), ``class`` or ``distilled`` (one head), ``logits`` (the mean of both heads' logits, as in timm)."""
    outputs: Literal["auto", "all", "subset"] = "auto"
    """Which outputs compete if the images have only some of the classifier's classes. ``subset``: those of these
    classes (as in the public code of ImageNet-A and -R); ``all``; ``auto``: ``subset`` for data sets by name, whose
    list of classes is fixed, and ``all`` for ``folder``, ``shards`` and ``data``, where a class may just have no
    images."""
    leaks: Literal["refuse", "drop", "report"] = "refuse"
    """Treatment of test images that a classifier was trained on: ``refuse`` stops with an error; ``drop`` removes them
    from the test of all classifiers and reports their number; ``report`` tests them and warns of their number."""
    allow_contaminated: bool = False
    """Test on data sets that a foundation model behind a classifier was pre-trained on, by its published list.
    ``false`` refuses them; ``true`` tests them, and every record and page says so."""
    data: DataConfig = DataConfig()
    source: TestSourceConfig = TestSourceConfig()
    model: TestModelConfig = TestModelConfig()
    views: TestViewsConfig = TestViewsConfig()
