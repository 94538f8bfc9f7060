"""``usvit models pull``: a model from a place, verified before it appears here."""

from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.files import JSON_BYTES, TEXT_BYTES, OutputFolder
from usvit.publishing import addresses
from usvit.publishing.card import CARD
from usvit.publishing.model_files import FILE, load_list, most_bytes, refuse_other_files
from usvit.publishing.signature import refuse_unsigned


@checked_arguments
def pull_model(address: str, out: str | Path, *, require_signature: str | Path | None = None) -> Path:
    """Fetch a model that was pushed, and verify it; nothing of it is executed or unpickled.

    Only the files that its list names are fetched, and its card. The folder appears when all of them have the SHA-256
    of the list, and is absent otherwise.

    Args:
        address: ``hf://OWNER/NAME`` or ``hf://OWNER/NAME@REVISION`` for the Hugging Face hub, a folder, or an address
            of fsspec, such as ``s3://BUCKET/FOLDER``.
        out: Folder to write; must be absent or empty.
        require_signature: Public key (PEM) with which the model must be signed; None: a signature is not required.

    Returns:
        The folder, for ``usvit.score``.

    Raises:
        UsvitError: The place has no model or cannot be reached, a file differs from the list, or the signature is
            missing or wrong. Nothing has been written.

    Example:
        >>> import usvit
        >>> pulled = usvit.pull_model("shared/model", "pulled")
        >>> sorted(path.name for path in pulled.glob("model*"))
        ['model-files.json', 'model.json', 'model.safetensors']
    """
    folder = OutputFolder(Path(out), "a model", instead="choose another folder")
    folder.refuse_other_files()
    with folder.staged() as staged:
        _fetch(address, FILE, staged, JSON_BYTES)
        try:
            record = load_list(staged / FILE)
            for name in sorted(record.files):
                _fetch(address, name, staged, most_bytes(name))
            _fetch(address, CARD, staged, TEXT_BYTES)
            refuse_other_files(staged, record)
            if require_signature is not None:
                refuse_unsigned(staged, Path(require_signature))
        except UsvitError as error:  # the folder that it names is hidden, and removed
            raise UsvitError(str(error).replace(str(staged), addresses.shown(address))) from error
    return Path(out)


def _fetch(address: str, name: str, folder: Path, most: int) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    with open(folder / name, "xb") as file:
        addresses.get(address, name, file, most)
