"""A transfer of one or several networks, resolved and checked before anything is written."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from usvit.data.datasets import Manifest, same_images
from usvit.data.splits import (
    SeenImages,
    contamination_warning,
    load_metadata,
    names_with_same_images,
    refuse_contaminated,
    seen_by_weights,
)
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.experiments import in_runs, model_record, new_record
from usvit.files import sha256_of_text
from usvit.models import (
    LoadReport,
    ModelSpec,
    Weights,
    build_with_report,
    count_parameters,
    find_model,
    fold_folders,
    give_mlp_head,
    input_statistics,
    is_named,
    resolve_weights,
    run_of_weights,
)
from usvit.plain_data import Settings
from usvit.progress import Progress
from usvit.records import ContaminationRecord, RunRecord
from usvit.records.run import Data, Folds
from usvit.training import Device, resolve_device, seed_everything
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.records.training import Dropped
from usvit.upstream.sources.catalog import DATA
from usvit.upstream.text_tuning.figures import check_prompts
from usvit.upstream.text_tuning.hub_words import hub_words
from usvit.upstream.text_tuning.pairs import check_pairs
from usvit.upstream.transfer_learning import probes
from usvit.upstream.transfer_learning.features import FeatureExtractor
from usvit.upstream.transfer_learning.retrieval import is_grafit, searching
from usvit.upstream.transfer_learning.splits import NONE_COMPARED, TransferSplits, open_splits, without_leaks

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TransferSetup:
    """Everything that the transfer of one network needs, resolved and checked."""

    config: TransferConfig
    spec: ModelSpec
    weights: Weights
    device: Device
    splits: TransferSplits
    dropped: Dropped
    """Test images that are left out (``without_leaks``)."""
    preprocessing: Preprocessing
    n_parameters: int
    loaded: LoadReport
    contamination: tuple[ContaminationRecord, ...] = ()
    """Tested data sets that a foundation model behind the weights was pre-trained on, which the user allowed."""
    texts_sha256: str | None = None
    """Hash of the texts, only for ``text``: another table makes another run."""

    def network(self) -> nn.Module:
        """Build the network with its initial weights and a new head on the CPU; each call returns the same network."""
        return _build(self.config, self.spec, self.weights, len(self.splits.classes))[0]

    def extractor(self, progress: Progress, config: PretrainConfig | None = None) -> FeatureExtractor:
        """Return the feature extractor for the configuration of the transfer, or of a cell."""
        config = config or self.config
        preprocessing = replace(self.preprocessing, image_size=config.model.image_size)
        return FeatureExtractor(preprocessing, config.views.test_crop, self.device.fabric(), progress)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.splits.classes

    @property
    def manifest(self) -> Manifest | None:
        return self.splits.manifest

    @property
    def inputs(self) -> Preprocessing:
        return self.preprocessing

    def of_head(self) -> "TransferSetup":
        """Return the setup as a training of the head only, for the metadata of a probed network."""
        model = self.config.model.model_copy(update={"tune": "head"})
        return replace(self, config=self.config.model_copy(update={"model": model}))


def default_out(config: TransferConfig) -> Path:
    """Return the default run directory, such as ``runs/transfer-fewshot-cifar10-vit_ti16-scratch-seed0``.

    It contains the name of the recipe and of the only cell, if there is one, and the name of initial weights from disk.
    """
    images = config.data.dataset if config.source.name == DATA else config.source.name
    images = "+".join(Path(name).stem for name in images.split("+"))
    origin = "several" if config.upstream else _origin(config.model.weights)
    recipe = "" if config.recipe == "none" else config.recipe
    model = "" if config.upstream else config.model.name  # several weights may be of several networks
    cell = next(iter(config.cells)) if len(config.cells) == 1 else ""
    return in_runs("transfer", config.how, images, model, origin, recipe, cell, f"seed{config.seed}")


def with_model_of(config: TransferConfig, choice: str, *, named: bool) -> TransferConfig:
    """Complete the configuration from the metadata of weights that usvit trained.

    The metadata names the network, its parts (``model.vit``) and, if no setting does, the size of its input. The
    hidden layer of a pre-training head is not taken over: a transfer replaces the whole head by one linear layer
    (Dosovitskiy et al. 2021, appendix B.1.1), unless ``model.vit.head`` says otherwise, or ``model.head`` is ``kept``.

    Args:
        config: The configuration.
        choice: The initial weights, as ``--weights`` names them.
        named: Keep the model of the configuration, because the user named it.

    Raises:
        UsvitError: The metadata is damaged, or the run is not finished.
    """
    metadata = None
    if not is_named(choice):
        path = Path(choice)
        if path.is_dir():
            metadata = load_metadata(fold_folders(path)[0] / "model.safetensors")
        elif path.is_file():
            metadata = load_metadata(path)
    update: Settings = {"weights": choice}
    if metadata is not None and "image_size" not in config.model.model_fields_set:
        update["image_size"] = (metadata.preprocessing or config.model).image_size
    if metadata is not None and not named:
        parts = dict(metadata.vit)
        if config.model.head != "kept":
            parts.pop("head", None)
        update |= {"name": metadata.architecture, "vit": config.model.vit.model_copy(update=parts)}
    return config.model_copy(update={"model": config.model.model_copy(update=update)})


def prepare(
    config: TransferConfig, roots: dict[str, Path], progress: Progress, *, model_named: bool
) -> list[TransferSetup]:
    """Resolve and check the transfer of each of the weights, before anything is written.

    Raises:
        UsvitError: The input cannot be used.
        LeakageError: The network has seen, or is trained on, test images.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsvitError("usvit transfer runs in one process: start it without torchrun.")
    splits = open_splits(config, roots, progress)
    setups = []
    for choice in config.upstream or (config.model.weights,):
        one = with_model_of(config.model_copy(update={"upstream": ()}), choice, named=model_named)
        setups.append(_prepare_one(one, splits))
        if config.upstream and setups[-1].weights.path is not None:  # do not keep many networks in memory
            setups[-1] = replace(setups[-1], weights=replace(setups[-1].weights, content=None))
    return checked(setups, progress)


def _prepare_one(config: TransferConfig, splits: TransferSplits) -> TransferSetup:
    """Resolve and check everything except leaks, the cheapest checks first."""
    device = resolve_device(config.device, config.precision)
    spec = find_model(config.model.name, config.model.vit.model_dump(exclude_none=True))
    weights = resolve_weights(config.model.weights, spec, config.model.weights_sha256)
    if weights.folds:
        raise UsvitError(
            f"--weights {config.model.weights} is a run of {len(weights.folds)} folds, each with its own network. "
            f"Name one of them: {config.model.weights}/fold-0."
        )
    mean, std = input_statistics(spec, weights)
    probes.check(config, splits)
    texts_sha256 = None
    if config.how == "text":
        check_prompts(config.text, splits.classes)
        texts_sha256 = check_pairs(config.text, splits)
        if config.text.tower is not None:
            hub_words(config.text.tower, config.text.context)  # a missing library or tower fails here
    model, loaded = _build(config, spec, weights, len(splits.classes))
    if config.how == "retrieval":
        searching(model, weights, config)  # an incomplete run fails here
    preprocessing = Preprocessing(config.model.image_size, "squash", mean, std)
    n = count_parameters(model)
    resolved = (config, spec, weights, device, splits, NONE_COMPARED, preprocessing, n, loaded)
    return TransferSetup(*resolved, texts_sha256=texts_sha256)


def checked(setups: Sequence[TransferSetup], progress: Progress) -> list[TransferSetup]:
    """Remove the test images that leak into any of the transfers (``without_leaks``), so that all use the same ones.

    Raises:
        LeakageError: There are such images, and the configuration does not drop them.
    """
    alone = len(setups) == 1  # several networks could be chosen by their upstream validation
    seen = {f"The network of --weights {one.config.model.weights}": forbidden(one, alone=alone) for one in setups}
    if warning := setups[0].weights.warning:
        logger.warning(warning)
    config, splits = setups[0].config, setups[0].splits
    tested = names_with_same_images(splits.test.table().dataset, same_images(config.data.dataset))
    lists = {who: known.collections for who, known in seen.items()}
    contamination = refuse_contaminated(tested, lists, allow=config.allow_contaminated)
    if contaminated := contamination_warning(contamination):
        logger.warning(contaminated)
    splits, dropped = without_leaks(splits, config, seen, progress)
    return [replace(setup, splits=splits, dropped=dropped, contamination=contamination) for setup in setups]


def forbidden(setup: TransferSetup, *, alone: bool) -> SeenImages:
    """Return the images that a transfer must not test: all that the weights have seen.

    The exception are validation images of a run of ``usvit pretrain`` that was set to keep its last step: they have
    chosen nothing, and are the test images of the papers. Test images of a data card are never excepted.

    Args:
        setup: The transfer.
        alone: There is no other network to choose from.
    """
    weights, metadata = setup.weights, setup.weights.metadata
    seen = seen_by_weights(weights)
    if metadata is None or metadata.best_step != metadata.steps:
        return seen
    queries = setup.config.how == "retrieval" and is_grafit(weights)
    run = run_of_weights(weights)
    if queries or (alone and setup.manifest is None and run is not None and run.kept_last_step):
        return seen.of_parts("train", "upstream")
    return seen


def run_record(setup: TransferSetup, command: str) -> RunRecord:
    """Return the content of ``run.json`` before the transfer begins."""
    images, parts = setup.splits.record(), setup.splits.parts()
    read = {**images.content(), "parts": {name: one and one.content() for name, one in parts.items()}}
    if setup.texts_sha256 is not None:
        read["texts_sha256"] = setup.texts_sha256
    data = {
        **dict(images),
        "parts": parts,
        # Images without a data card have no positive class; tables that need one take the first.
        "positive_class": setup.splits.classes[0] if setup.manifest is None else setup.manifest.positive_class,
        "dropped": setup.dropped.content(),
        "contamination": list(setup.contamination) or None,
        "sha256": sha256_of_text(str((read, setup.dropped.content()))),
    }
    model = model_record(setup.spec, setup.n_parameters, None, setup.weights, setup.loaded)
    out = default_out(setup.config)
    return new_record(
        "transfer", out, setup.config, setup.device, command, Data.model_validate(data), folds=Folds(n=1), model=model
    )


def _build(config: TransferConfig, spec: ModelSpec, weights: Weights, n_classes: int) -> tuple[nn.Module, LoadReport]:
    seed_everything(config.seed, "model", 0)
    model, report = build_with_report(spec, weights, n_classes=n_classes, image_size=config.model.image_size)
    if config.how == "finetune" and config.model.head == "mlp":
        give_mlp_head(model)
    return model, report


def _origin(choice: str) -> str:
    return choice.partition("=")[0].replace(":", "-") if is_named(choice) else Path(choice).stem
