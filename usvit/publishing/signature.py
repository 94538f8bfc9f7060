"""Ed25519 signatures of models (RFC 8032), by the package ``cryptography``.

The signature is that of the list of files with their SHA-256 (``ModelFilesRecord``).
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.files import read_bytes
from usvit.publishing.model_files import FILE, hashes, load_list, model_files, refuse_other_files
from usvit.records import ModelFilesRecord, SignatureRecord, save_record

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_KEY_BYTES = 10_000
_HOW = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out key.pub"


@checked_arguments
def sign_model(model: str | Path, key: str | Path) -> Path:
    """Sign the files of a model: write ``model-files.json`` with their hashes and an Ed25519 signature.

    Every network, record and table of predictions that ``usvit score --model`` reads is signed; pages are not.
    An earlier list is replaced.

    Args:
        model: Folder of a run, of a fold, or of an export as safetensors.
        key: File with the private key, in PEM.

    Returns:
        The file with the signature.

    Raises:
        UsvitError: The folder is no such model, the key is not an Ed25519 key in PEM, or ``cryptography`` is missing.

    Example:
        >>> import usvit
        >>> from cryptography.hazmat.primitives import serialization as form
        >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        >>> key = Ed25519PrivateKey.generate()  # or: openssl genpkey -algorithm ed25519 -out key.pem
        >>> pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        >>> Path("key.pem").write_bytes(pem) > 100
        True
        >>> usvit.sign_model("exported", "key.pem").name
        'model-files.json'
    """
    model, secret = Path(model), _key(Path(key), private=True)
    files = hashes(model, model_files(model))
    signature = SignatureRecord(
        algorithm="Ed25519",
        public_key=secret.public_key().public_bytes_raw().hex(),
        value=secret.sign(signed_bytes(files)).hex(),
    )
    save_record(model / FILE, ModelFilesRecord(files=files, signature=signature))
    return model / FILE


def refuse_unsigned(model: Path, public_key: Path) -> None:
    """Refuse a model that was not signed with a key, or was changed since.

    Args:
        model: Folder of the model; for a fold of a signed run, the run is checked.
        public_key: File with the public key, in PEM.

    Raises:
        UsvitError: There is no signature, it is that of another key, or a file was changed, added or removed.
    """
    wanted = _key(public_key, private=False)
    folder, within = model.absolute(), ""
    if not (folder / FILE).exists() and (folder.parent / "run.json").is_file():
        folder, within = folder.parent, f"{folder.name}/"
    if not (folder / FILE).exists():
        raise UsvitError(
            f"The model {model} is not signed: it has no {FILE}, and --require-signature takes only models that were "
            "signed with 'usvit models sign'. Ask whoever gave it to you for a signed one."
        )
    record = load_list(folder / FILE)
    if f"{within}model.json" not in record.files and within:
        raise UsvitError(f"The signature of {folder} does not cover {model}. Ask whoever signed the run.")
    refuse_other_signature(folder, record, wanted, f"the one in {public_key}")


def refuse_other_signature(
    folder: Path, record: ModelFilesRecord, wanted: "Ed25519PublicKey | None" = None, whose: str = ""
) -> None:
    """Refuse a list whose signature is not that of the key ``wanted``, or a folder with other files.

    Args:
        folder: Folder of the model.
        record: Its list.
        wanted: The key; None for the one that the list names, which anybody could have put there.
        whose: Description of the key, for the error.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature = record.signature
    if signature is None:
        raise UsvitError(f"The model {folder} is not signed: {FILE} has no signature. Ask for a signed one.")
    if wanted is not None and wanted.public_bytes_raw().hex() != signature.public_key:
        raise UsvitError(
            f"The model {folder} is signed with another key ({signature.public_key[:16]}...) than {whose} "
            f"({wanted.public_bytes_raw().hex()[:16]}...). Do not use it, or name the key of whoever signed it."
        )
    by = wanted or Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public_key))
    try:
        by.verify(bytes.fromhex(signature.value), signed_bytes(record.files))
    except InvalidSignature:
        raise UsvitError(
            f"The signature in {folder / FILE} does not belong to the files that it lists: the list was changed after "
            "it was signed. Do not use the model; ask for another copy."
        ) from None
    refuse_other_files(folder, record)


def signed_bytes(files: dict[str, str]) -> bytes:
    """Return what is signed."""
    return b"usvit model files 1\n" + json.dumps(files, sort_keys=True, separators=(",", ":")).encode("ascii")


def _key(file: Path, *, private: bool) -> Any:
    """Return the ``Ed25519PrivateKey`` or ``Ed25519PublicKey`` of a PEM file."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise UsvitError(
            "Signatures need the package cryptography, which is not installed: pip install 'usvit[sign]'"
        ) from error
    what = "private" if private else "public"
    content = read_bytes(file, _KEY_BYTES)
    try:
        found = (
            serialization.load_pem_private_key(content, None) if private else serialization.load_pem_public_key(content)
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = (
            "it has a password, which usvit cannot ask for" if isinstance(error, TypeError) else "it is no such PEM"
        )
        raise UsvitError(f"The {what} key {file} cannot be read: {reason}. Make a pair of keys with: {_HOW}") from None
    kind: type[Ed25519PrivateKey | Ed25519PublicKey] = (
        ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey
    )
    if not isinstance(found, kind):
        raise UsvitError(f"The {what} key {file} is not an Ed25519 key. Make a pair of keys with: {_HOW}")
    return found
