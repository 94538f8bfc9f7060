"""``model-files.json``: the files of a model that is passed on, with their hashes and perhaps a signature."""

from typing import Annotated, ClassVar

from pydantic import Field

from usvit.records.base import FileRecord, Name, Record, Sha256, key, optional


class SignatureRecord(Record):
    """Signature of the list of files."""

    algorithm: Name = key(const="Ed25519")
    public_key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] = key("Raw public key, hexadecimal.")
    value: Annotated[str, Field(pattern="^[0-9a-f]{128}$")] = key("Signature, hexadecimal.")


class ModelFilesRecord(FileRecord):
    """Files of a model folder; those that are not listed do not belong to the model."""

    KIND: ClassVar[str] = "model-files"
    files: Annotated[dict[str, Sha256], Field(min_length=1, max_length=100_000)] = key(
        "Path in the folder -> SHA-256 of the file."
    )
    signature: SignatureRecord | None = optional(
        "Present if the model is signed (usvit models sign). It signs the bytes of 'usvit model files 1', a line feed, "
        "and 'files' as JSON with sorted keys, without spaces, in ASCII."
    )
