"""Settings of ``usvit transfer --how text``: a text tower against locked image features."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from usvit.config.sections import Section

_Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class TextConfig(Section):
    """``text``: texts, and the training of a text tower on the locked features of the images."""

    pairs: str | None = None
    """CSV with columns ``image_id`` and ``text`` for every image of the training; each further column is a concept,
    such as ``shape``, with its value for the image. Where training and test have images of the same name, it has
    ``train/`` or ``test/`` before it. null: the texts of the source itself: the sentences of ``phantom``, and
    the files ``.txt`` of ``shards``."""
    loss: Literal["softmax", "sigmoid"] = "softmax"
    """``softmax`` over the batch (CLIP, LiT), or ``sigmoid`` of each pair (SigLIP)."""
    projection: bool = True
    """Map the standardised features linearly, and train the map; the network stays locked. ``false``: the text tower
    meets the features as they are (LiT)."""
    tower: Annotated[str, Field(pattern="^hf:.+")] | None = None
    """Text tower to begin with, and to tune: ``hf:NAME`` or ``hf:NAME@COMMIT`` of the Hugging Face hub, or
    ``hf:FOLDER`` with ``config.json``, ``tokenizer.json`` and safetensors; by transformers, without code of the hub.
    null: a small one with random weights and its own byte pairs, of ``width``, ``depth`` and ``heads``."""
    vocabulary: Annotated[int, Field(ge=258, le=100_000)] = 1024
    """Largest number of byte pairs, bytes and signs; they are learnt from the training texts."""
    context: Annotated[int, Field(ge=2, le=2048)] = 64
    """Largest number of byte pairs of a text, with its end; longer texts are cut, and counted."""
    width: Annotated[int, Field(ge=8)] = 128
    """Width of the text tower."""
    depth: Annotated[int, Field(ge=1)] = 2
    """Number of layers of the text tower."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Attention heads of a layer."""
    steps: Annotated[int, Field(ge=1)] = 1000
    """Number of steps."""
    batch_size: Annotated[int, Field(ge=2)] = 256
    """Pairs in a batch; every text is compared with every image of it."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Largest learning rate, after a warm-up over a twentieth of the steps; it falls to zero as a cosine."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    """Weight decay of matrices (AdamW)."""
    templates: _Texts = ("{}", "an image of {}", "this image shows {}")
    """Prompts of a class or concept without ``prompts``; ``{}`` stands for the name of the class, or for value and name
    of the concept: ``oval shape``. The mean of all prompts counts."""
    prompts: dict[str, _Texts] = Field(default_factory=dict)
    """Class, or value of a concept (``margin: spiculated``) -> its prompts, in place of ``templates``."""

    decoder: bool = False
    """Train a decoder of two layers, too, that writes a caption of each test image (LiT-decoder)."""
    decoder_steps: Annotated[int, Field(ge=1)] = 1000
    """Number of steps of the decoder; the other settings are those of the text tower."""
    phrases: dict[str, _Texts] = Field(default_factory=dict)
    """Value of a concept (``margin: spiculated``) -> phrases by which it is read from a caption. Without them: those
    that phantoms use, or the value itself."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"text.width={self.width} is not a multiple of text.heads={self.heads}")
        if without := [one for one in self.templates if "{}" not in one]:
            raise ValueError(f"text.templates needs {{}} in each, and '{without[0]}' has none")
        return self
