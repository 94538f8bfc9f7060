"""Initial weights of a network, found and hashed, and what is known of their origin."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from usvit.errors import UsvitError
from usvit.models.weights.read import Checkpoint, parse_weights, weights_bytes
from usvit.records import ModelMetadata, SeenCollectionRecord
from usvit.records.weights_origin import LoadedRecord, TrainingRecord, WeightsRecord


@dataclass(frozen=True)
class Weights:
    """Initial weights of a network, found and hashed. For a run with several folds they differ by fold."""

    source: str
    """``hub``, ``package``, ``file``, ``run`` or ``scratch``."""
    path: Path | None = None
    name: str | None = None
    """Repository of the hub, name of the Python package, of the file or of the run; never a full path."""
    sha256: str | None = None
    """SHA-256 of the file; for a run with several folds: of the text with one line for each file's SHA-256."""
    license: str | None = None
    upstream: str | None = None
    """Key of ``ModelSpec.weights``, for weights of the hub or of a package."""
    pretrained_by: str | None = None
    revision: str | None = None
    """Commit of the hub's repository, or version of the package."""
    pinned: bool | None = None
    """True if the hub's revision and hash are checked against a pin (``pins``); None for others than
    those of the hub or of a package."""
    lineage: tuple[TrainingRecord, ...] = ()
    """Trainings that led to weights of usvit, the last one first."""
    metadata: ModelMetadata | None = field(default=None, repr=False)
    """Content of the ``model.json`` beside weights of usvit: among others, which images they have seen."""
    base: "Weights | None" = field(default=None, repr=False)
    """The base of adapters, whose file holds only them and the head; None for the weights of a whole network."""
    folds: tuple["Weights", ...] = field(default=(), repr=False)
    """Initial weights of each fold, if they come from a run with several folds."""
    parts: tuple["Weights", ...] = field(default=(), repr=False)
    """Those of each network of a head on frozen features (``ModelSpec.parts``)."""
    collections: tuple[SeenCollectionRecord, ...] = ()
    """Published lists of the data sets of foundation weights, which have no metadata."""
    content: Checkpoint | None = field(default=None, repr=False, compare=False)
    """Content of the file, kept so that it is read only once. If None (folds of a run), ``read`` reads the file."""

    @property
    def unknown_training(self) -> str | None:
        """Name of trained weights without metadata; None if they have metadata or are random."""
        return None if self.source == "scratch" or self.metadata is not None else f"{self.source} weights {self.name}"

    def of_fold(self, fold: int) -> "Weights":
        """Return the initial weights of one fold, counted from 0."""
        return self.folds[fold] if self.folds else self

    @property
    def warning(self) -> str | None:
        """Warning for the user if the weights are not pinned and may therefore change; otherwise None."""
        if self.pinned is not False:
            return None
        return (
            f"The hub's weights {self.name} are not pinned: the hub could hand out another file under this "
            f"name. This is revision {self.revision or 'unknown'} with SHA-256 {self.sha256}; "
            "'usvit models pin MODEL' records both, and later runs require them."
        )

    def read(self) -> Checkpoint:
        """Return the tensors.

        Raises:
            UsvitError: The file is damaged, or has changed since it was found.
        """
        if self.content is not None:
            return self.content
        assert self.path is not None and not self.folds
        data, sha256 = read_hashed(self.path)
        if self.sha256 not in (None, sha256):
            raise UsvitError(f"The weights {self.path} have been changed since the run began. Restore the file.")
        return parse_weights(data, self.path)

    def record(self, loaded: LoadedRecord | None = None) -> WeightsRecord:
        """Return the entry of ``run.json`` and ``model.json``, without the path, which is specific to one machine.

        Args:
            loaded: Which tensors were loaded, for ``run.json``.
        """
        record = WeightsRecord(
            source=self.source,
            name=self.name,
            sha256=self.sha256,
            license=self.license,
            upstream=self.upstream,
            pretrained_by=self.pretrained_by,
            pinned=self.pinned,
            lineage=list(self.lineage) or None,
            folds=[fold.sha256 or "" for fold in self.folds] or None,
            loaded=loaded,
        )
        return record if self.pinned is None else record.model_copy(update={"revision": self.revision})


def read_hashed(path: Path) -> tuple[bytes, str]:
    """Return the bytes of a file of weights, and their SHA-256.

    Raises:
        UsvitError: as ``weights_bytes``.
    """
    data = weights_bytes(path)
    return data, hashlib.sha256(data).hexdigest()
