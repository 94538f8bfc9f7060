"""Resolution of ``--weights``: find the weights, read them once and hash them, before a run begins.

A run whose weights are not available therefore stops before any work.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from usvit.config import ViTShape
from usvit.data.splits import load_metadata
from usvit.errors import UsvitError, unknown
from usvit.files import sha256_of_text
from usvit.models.foundation import FoundationModel
from usvit.models.spec import ModelSpec, Pretrained
from usvit.models.weights.adapter_base import find_base, refusal
from usvit.models.weights.hub import HubUnavailable, hub_file, suffixes, without_hub
from usvit.models.weights.initial import Weights, read_hashed
from usvit.models.weights.packages import find_packaged, package_file
from usvit.models.weights.pins import Pin, pin_of, revision_of
from usvit.models.weights.read import FILE_SUFFIXES, Checkpoint, parse_weights
from usvit.models.weights.run_folds import fold_folders
from usvit.models.weights.sources import HUB_FILES, SHIPPED
from usvit.records import ModelMetadata
from usvit.records.weights_origin import TrainingRecord
from usvit.resources import weights_dir

_WORDS = ("hub", "package", "scratch", SHIPPED)
_UNSEEN = ("heads", "attention", "position", "position_at", "class_at", "class_keys")
"""Settings of a ViT that can differ although all tensors have the same names and shapes."""


def is_named(choice: str) -> bool:
    """Return whether ``--weights`` names a source, such as ``hub:in1k`` or ``package+phantom``, and no file or run."""
    return all(word.partition(":")[0] in _WORDS for word in choice.split("+"))


def resolve_weights(choice: str, spec: ModelSpec, sha256: str | None = None) -> Weights:
    """Find the weights that ``--weights`` names; download them only for ``hub``, and only if not cached.

    Args:
        choice: ``hub`` (the recommended weights), ``hub:UPSTREAM`` (a key of ``spec.weights``), ``hub:UPSTREAM=FILE``
            (a downloaded copy of these), ``package`` or ``package:NAME`` (those of an installed Python package),
            ``scratch``, ``phantom`` (the weights that ship with usvit), a file with one of ``FILE_SUFFIXES``, a
            finished run of usvit, or the folder of one of its folds.
        spec: the network that the weights are for.
        sha256: required SHA-256 of the file (``model.weights_sha256``).

    Raises:
        UsvitError: The weights are neither cached nor reachable; there is no such file, run or upstream; or the file is
            damaged, belongs to another network, or has another SHA-256.
    """
    if spec.parts and is_named(choice):
        weights = _of_parts(choice.split("+"), spec)
    elif choice == "scratch":
        if sha256:
            raise UsvitError("model.weights_sha256 requires a file, but --weights scratch has none. Leave it out.")
        return Weights("scratch")
    elif choice == SHIPPED:
        weights = _from_usvit(spec)
    elif choice == "package" or choice.startswith("package:"):
        weights = _from_package(choice, spec)
    else:
        weights = _from_hub(choice, spec) if choice == "hub" or choice.startswith("hub:") else _from_disk(choice, spec)
    weights = _with_collections(weights, spec)
    if sha256 and weights.sha256 != sha256:
        raise UsvitError(
            f"--weights {choice}: the SHA-256 is {weights.sha256}, but model.weights_sha256 requires {sha256}. "
            "Get the file again, or give the hash that it has."
        )
    return weights


def _of_parts(choices: list[str], spec: ModelSpec) -> Weights:
    """Find the weights of each network of a head on frozen features, and join what is stated about them."""
    backbones = [one.name for one in spec.parts][: len(spec.options["networks"])]
    if len(choices) not in (1, len(backbones)):
        raise UsvitError(
            f"--weights {'+'.join(choices)} names {len(choices)} weights, and the model {spec.name} joins "
            f"{len(backbones)} networks. Name one for all, or one for each: package+{SHIPPED}."
        )
    if len(choices) == 1:
        choices = choices * len(backbones)
    choices = [*choices, *[SHIPPED] * (len(spec.parts) - len(backbones))]  # the network that finds the lesion
    parts = tuple(resolve_weights(one, own) for one, own in zip(choices, spec.parts, strict=True))

    def each(values: Iterable[object]) -> str | None:
        return " + ".join(dict.fromkeys(str(one) for one in values if one is not None)) or None

    pinned = [one.pinned for one in parts if one.pinned is not None]
    return Weights(
        next((one.source for one in parts if one.source != "scratch"), "scratch"),
        name=each(one.name for one in parts),
        sha256=sha256_of_text("".join(f"{one.sha256}\n" for one in parts)),
        license=each(one.license for one in parts),
        upstream=each(one.upstream for one in parts),
        pretrained_by=each(one.pretrained_by for one in parts),
        revision=each(one.revision for one in parts),
        pinned=all(pinned) if pinned else None,
        lineage=tuple(training for one in parts for training in one.lineage),
        collections=tuple(entry for one in parts for entry in one.collections),
        parts=parts,
    )


def _with_collections(weights: Weights, spec: ModelSpec) -> Weights:
    """Add the published data sets of foundation weights.

    A file without metadata for the network of a foundation model is taken to be the release: the network is its own.
    """
    if weights.metadata is not None or weights.folds:
        return weights
    upstream = weights.upstream or next(iter(spec.weights), None)
    chosen = spec.weights.get(upstream) if upstream else None
    if chosen is None or chosen.foundation is None:
        return weights
    entry = chosen.foundation
    return replace(
        weights,
        upstream=entry.name,
        license=entry.license,
        pretrained_by=entry.by,
        collections=(entry.seen_collection(),),
    )


def _from_usvit(spec: ModelSpec) -> Weights:
    """Find the weights that ship with usvit: they were trained on phantoms alone (``weights/phantom``)."""
    file = weights_dir() / SHIPPED / "model.safetensors"
    if not file.is_file():
        raise UsvitError(
            f"The weights that ship with usvit are missing ({file}). Install usvit again, or make them: "
            "python -m usvit.upstream.phantom_weights"
        )
    metadata = load_metadata(file)
    assert metadata is not None and metadata.architecture is not None
    if spec.architecture != metadata.timm:  # the network of several views has the same layers
        raise UsvitError(
            f"--weights {SHIPPED} are weights of the model {metadata.architecture}, but the model is {spec.name}. "
            f"Pass --model {metadata.architecture}, or --weights scratch. A folder of this name is ./{SHIPPED}."
        )
    data, sha256 = read_hashed(file)
    if sha256 != metadata.weights_sha256:
        raise UsvitError(
            f"The weights {file} are not those that ship with usvit: their SHA-256 is wrong. Reinstall it."
        )
    return Weights(
        "file",
        file,
        SHIPPED,
        sha256,
        license="apache-2.0",
        pretrained_by="usvit, phantoms of its own physical model",
        lineage=_lineage(metadata),
        metadata=metadata,
        content=parse_weights(data, file),
    )


def _from_disk(choice: str, spec: ModelSpec) -> Weights:
    path = Path(choice)
    if path.is_dir():
        return _from_run(path, spec)
    if not path.is_file():
        raise UsvitError(
            f"--weights {choice}: there is no such file. Give hub, hub:UPSTREAM, package, scratch, phantom, a "
            "file "
            f"({suffixes()}), or the folder of a run."
        )
    if path.suffix not in FILE_SUFFIXES:
        raise UsvitError(f"--weights {choice}: files of this kind are not read; known: {suffixes()}.")
    metadata = load_metadata(path)
    data, sha256 = read_hashed(path)
    if metadata is not None and metadata.adapter is not None and metadata.weights_sha256 != sha256:
        metadata = None  # adapters and their base may lie in one folder, whose model.json describes the adapters
    _check_network(metadata, spec, path)
    content, base = parse_weights(data, path), _base(metadata, path, spec)
    _refuse_lone_adapters(content, metadata, path)
    return _of_usvit("file", path, path.name, sha256, metadata, base, content)


def _from_run(path: Path, spec: ModelSpec) -> Weights:
    folders = fold_folders(path)
    whole = path.resolve()
    name = whole.name if folders != [path] else f"{whole.parent.name}/{whole.name}"
    folds = []
    for folder in folders:
        file = folder / "model.safetensors"
        metadata = load_metadata(file)
        if metadata is None:
            raise UsvitError(f"{folder} has no model.json, so what its network has seen is not known. Restore it.")
        _check_network(metadata, spec, folder)
        data, sha256 = read_hashed(file)
        content = parse_weights(data, file) if len(folders) == 1 else None  # many networks are not kept in memory
        base = _base(metadata, file, spec)
        folds.append(_of_usvit("run", file, name, sha256, metadata, base, content))
    if len(folds) == 1:
        return folds[0]
    together = sha256_of_text("".join(f"{fold.sha256}\n" for fold in folds))
    return replace(folds[0], path=path, sha256=together, folds=tuple(folds))


def _base(metadata: ModelMetadata | None, file: Path, spec: ModelSpec) -> Weights | None:
    """Find the base of adapters; None for the weights of a whole network."""
    if metadata is None or metadata.adapter is None:
        return None
    choice = find_base(metadata.adapter, file)
    try:
        return resolve_weights(choice, spec, metadata.adapter.base.sha256)
    except UsvitError as error:
        raise refusal(metadata.adapter, file, str(error)) from error


def _refuse_lone_adapters(content: Checkpoint, metadata: ModelMetadata | None, path: Path) -> None:
    """Refuse adapters without the metadata that names their base."""
    if (metadata is None or metadata.adapter is None) and any(".lora_a." in name for name in content.tensors):
        raise UsvitError(
            f"The weights {path} are adapters (LoRA), not a whole network, and no model.json beside them names their "
            "base. Copy model.json from the same fold."
        )


def _of_usvit(
    source: str,
    path: Path,
    name: str,
    sha256: str,
    metadata: ModelMetadata | None,
    base: Weights | None,
    content: Checkpoint | None,
) -> Weights:
    """Return weights from the disk; those that usvit trained have the licence and the origin of their initial ones."""
    weights = Weights(source, path, name, sha256, metadata=metadata, base=base, content=content)
    if metadata is None:
        return weights
    before = metadata.upstream
    return replace(weights, license=before.license, pretrained_by=before.pretrained_by, lineage=_lineage(metadata))


def _lineage(metadata: ModelMetadata) -> tuple[TrainingRecord, ...]:
    """Return each training behind weights of usvit, the last one first."""
    kept = TrainingRecord.model_fields.keys() & metadata.model_fields_set
    this = TrainingRecord(**{name: getattr(metadata, name) for name in kept})
    return (this, *(metadata.upstream.lineage or []))


def _check_network(metadata: ModelMetadata | None, spec: ModelSpec, where: Path) -> None:
    """Refuse weights whose metadata names another network; a timm name and a zoo name may mean the same network."""
    if metadata is None:
        return  # usvit did not train them: only the tensors show which network it is
    trained = metadata.architecture
    made_of = str(metadata.timm).partition(".")[0]
    if trained != spec.name and made_of != spec.architecture:
        raise UsvitError(
            f"The weights {where} were trained as {trained}, but the model is {spec.name}. "
            f"Pass --model {trained}, or other weights."
        )
    own, asked = _shape_of(trained, metadata.vit), spec.shape
    differ = (
        [] if own is None or asked is None else [key for key in _UNSEEN if getattr(own, key) != getattr(asked, key)]
    )
    if differ:
        settings = " ".join(f"--set model.vit.{key}={getattr(own, key)}" for key in differ)
        raise UsvitError(
            f"The weights {where} were trained with other settings of {spec.name}, which make it another network. "
            f"Pass {settings}, or other weights."
        )


def _shape_of(trained: str, vit: dict[str, object] | None) -> ViTShape | None:
    from usvit.models.zoo import find_model

    try:
        return None if vit is None else find_model(trained, vit).shape
    except (UsvitError, TypeError):  # another version of usvit: only the tensors show which network it is
        return None


def _from_hub(choice: str, spec: ModelSpec, *, pinned: bool = True) -> Weights:
    """Get weights from the hub or its cache; with ``pinned=False`` its present content, as for a new pin."""
    import timm

    upstream = choice.partition(":")[2] if ":" in choice else next(iter(spec.weights), "")
    upstream, copied, file = upstream.partition("=")
    if spec.weights and upstream not in spec.weights:
        raise unknown(
            f"pre-trained weights of {spec.name}",
            upstream,
            spec.weights,
            f"'usvit models info {spec.name}' shows them.",
        )
    chosen = spec.weights.get(upstream)
    if chosen and copied:
        found = _from_disk(file, spec)
        if found.source != "file" or found.metadata is not None:
            raise UsvitError(
                f"--weights {choice}: {file} was trained by usvit, so it is not a copy of the weights {upstream}. Pass "
                f"--weights {file}."
            )
        return replace(found, upstream=upstream, pretrained_by=chosen.by)
    if chosen and chosen.foundation and chosen.timm is None:
        raise UsvitError(_not_hosted(chosen.foundation))
    config = timm.get_pretrained_cfg(chosen.timm) if chosen and chosen.timm else None
    repository = config.hf_hub_id if config else None
    if not chosen or not config or not repository:
        raise UsvitError(f"There are no hub weights for the model {spec.name}. {without_hub()}")
    pin = pin_of(repository) if pinned else None
    files = (config.hf_hub_filename,) if config.hf_hub_filename else HUB_FILES
    revision = None
    if pin is not None:
        files, revision = (pin.file,), pin.revision
    try:
        path = hub_file(repository, files, spec.name, revision)
    except HubUnavailable as error:
        if chosen.package is None:
            raise
        raise HubUnavailable(
            f"{error} --weights package takes them from the Python package {chosen.package}."
        ) from error
    data, sha256 = read_hashed(path)
    if pin is not None and sha256 != pin.sha256:
        raise UsvitError(
            f"The weights {path} are not those that are pinned for {repository}: their SHA-256 is {sha256}, but "
            f"{pin.sha256} is required. Delete this file from the Hugging Face cache, and run the command again."
        )
    content = parse_weights(data, path)
    found = Weights("hub", path, repository, sha256, config.license, upstream, chosen.by, content=content)
    return replace(found, revision=revision_of(path), pinned=pin is not None)


def _from_package(choice: str, spec: ModelSpec) -> Weights:
    """Get weights from an installed Python package, which is not imported."""
    import timm

    upstream, package = find_packaged(choice, spec)
    pin, chosen = pin_of(package), spec.weights[upstream]
    assert pin is not None, f"{package} is not pinned"
    path = package_file(package, pin, spec.name)
    data, sha256 = read_hashed(path)
    if sha256 != pin.sha256:
        raise UsvitError(
            f"The weights {path} are not those that are pinned for the Python package {package} {pin.revision}: their "
            f"SHA-256 is {sha256}, but {pin.sha256} is required. Install it again from a source that you trust: pip "
            f"install --force-reinstall '{package}=={pin.revision}'."
        )
    config = timm.get_pretrained_cfg(chosen.timm) if chosen.timm else None
    license_ = config.license if config else None
    content = parse_weights(data, path)
    by = f"{chosen.by}; tensors of EfficientNet-PyTorch, renamed to timm's"
    found = Weights("package", path, package, sha256, license_, upstream, by, content=content)
    return replace(found, revision=pin.revision, pinned=True)


def find_pin(choice: str, spec: ModelSpec) -> tuple[str, Pin]:
    """Return the repository of hub weights, and a pin of its present content.

    Args:
        choice: ``hub`` or ``hub:UPSTREAM``.
        spec: the network that the weights are for.

    Raises:
        UsvitError: As ``resolve_weights``, or the commit is not known.
    """
    weights = _from_hub(choice, spec, pinned=False)
    assert weights.name is not None and weights.path is not None and weights.sha256 is not None
    if weights.revision is None:
        raise UsvitError(f"The commit of {weights.path} is not known, so it cannot be pinned. Download it again.")
    return weights.name, Pin(weights.revision, weights.path.name, weights.sha256)


def hub_entry(spec: ModelSpec, weights: Weights | None) -> Pretrained | None:
    """Return the hub's weights that were chosen, or the recommended ones if none were."""
    upstream = weights.upstream if weights else None
    return spec.weights.get(upstream) if upstream else spec.recommended


def _not_hosted(entry: FoundationModel) -> str:
    file = f" ({entry.file})" if entry.file else ""
    return (
        f"The weights of {entry.title} are not on a hub that usvit downloads from. Download the file{file} from "
        f"{entry.address} (licence {entry.license}), and pass --weights hub:{entry.name}=FILE."
    )
