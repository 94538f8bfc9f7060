"""Index of a WebDataset shard: the headers are read once, so that any image is one seek away.

A shard is a plain tar file. Consecutive files that share the name up to the first dot are one sample (``000017.jpg``,
``000017.cls``), as in the webdataset library. That library streams a shard from its beginning, so it cannot resume a
killed training at image 17 of epoch 3, and its opener runs shell commands (``pipe:``). The format is therefore read
here with Python's tarfile; the tests write shards with the library's ShardWriter.
"""

import json
import tarfile
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from usvit.data.io import STILL_SUFFIXES
from usvit.errors import UsvitError

_FIRST = ("jpg", "jpeg", "png", "webp")
IMAGES = (*_FIRST, *sorted({suffix[1:] for suffix in STILL_SUFFIXES} - {*_FIRST}))
"""Suffixes of the members that are images, without the dot; the first one of a sample is its image."""
_MAX_LABEL_BYTES = 1_000_000
"""Maximum number of bytes that are read of a .cls or .json file."""
MAX_TEXT_BYTES = 100_000
"""Maximum number of bytes that are read of a .txt file."""
MAX_CLASSES = 1_000_000
"""Larger class numbers are refused, because the head has one row per class."""
_MAX_NAME = 1000
"""Maximum length of a class name in characters."""
_ZEROS = bytes(512)


@dataclass
class ShardIndex:
    """The images of one shard, in the order of the file."""

    keys: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    text_offsets: list[int] = field(default_factory=list)
    """Place of the text (``.txt``) of each image; -1 if it has none."""
    text_sizes: list[int] = field(default_factory=list)
    labels: list[str] | None = None
    """Labels as text; None if the shard has none."""
    numbers: bool = True
    """True if the labels are class numbers, False if they are names."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the index as arrays, for the cache."""
        return {
            "keys": np.array(self.keys, dtype=np.str_),
            "offsets": np.array(self.offsets, dtype=np.int64),
            "sizes": np.array(self.sizes, dtype=np.int64),
            "text_offsets": np.array(self.text_offsets, dtype=np.int64),
            "text_sizes": np.array(self.text_sizes, dtype=np.int64),
            "labels": np.array(self.labels or [], dtype=np.str_),
            "numbers": np.array(self.numbers),
        }

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]]) -> "ShardIndex":
        return cls(
            keys=arrays["keys"].tolist(),
            offsets=arrays["offsets"].tolist(),
            sizes=arrays["sizes"].tolist(),
            text_offsets=arrays["text_offsets"].tolist(),
            text_sizes=arrays["text_sizes"].tolist(),
            labels=arrays["labels"].tolist() or None,
            numbers=bool(arrays["numbers"]),
        )


def read_index(file: BinaryIO, shard: str) -> ShardIndex:
    """List the samples of a shard.

    Args:
        file: the tar file, opened for reading at its beginning.
        shard: name of the shard for error messages.

    Raises:
        UsvitError: The file is not a plain tar file or is truncated, a sample has no image, only some samples have a
            label, or a label cannot be read.
    """
    samples: list[tuple[str, dict[str, tuple[int, int]]]] = []
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined] # else it keeps each header
                key, suffix = _split(member.name)
                if not member.isfile() or member.issparse() or not suffix or member.name.startswith("__"):
                    continue
                if not samples or samples[-1][0] != key:
                    samples.append((key, {}))
                if suffix in samples[-1][1]:
                    raise UsvitError(f"The shard {shard} contains the file {member.name} twice in one sample. {_RENEW}")
                samples[-1][1][suffix] = (member.offset_data, member.size)
            end = tar.offset
    except tarfile.TarError as error:
        if (head := _head(file)) is not None:
            raise UsvitError(f"The shard {shard} is {head}. {_RENEW}") from error
        raise _ends_early(shard, len(samples), str(error)) from error
    # tarfile treats the end of the file, or a damaged header, as the end of the archive. A complete archive ends with a
    # block of zeros.
    file.seek(end)
    if file.read(512) != _ZEROS:
        raise _ends_early(shard, len(samples), "it has no end-of-archive mark")
    if not samples:
        raise UsvitError(f"The shard {shard} is a tar file without a sample. {_RENEW}")
    return _index(file, shard, samples)


_RENEW = "Fetch it again, or remove it from source.path."


def _ends_early(shard: str, samples: int, why: str) -> UsvitError:
    return UsvitError(
        f"The shard {shard} ends early, after {samples} samples ({why}): its transfer was interrupted, or it is still "
        f"being written. {_RENEW}"
    )


def _head(file: BinaryIO) -> str | None:
    """Describe a file whose first bytes are not those of a tar file; None if it may be a damaged tar file."""
    file.seek(0)
    head = file.read(512)
    packed = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}.get(head[:2])
    if packed:
        return f"compressed with {packed}, which does not allow reading single images: decompress it to a plain tar"
    if not head:
        return "an empty file"
    return "no tar file" if len(head) == 512 and head[257:262] != b"ustar" else None


def _split(name: str) -> tuple[str, str]:
    """Split 'train/000017.seg.png' into webdataset's key 'train/000017' and extension 'seg.png'."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    return (folder + slash + stem, suffix.lower()) if stem and dot else (name, "")


def _index(file: BinaryIO, shard: str, samples: list[tuple[str, dict[str, tuple[int, int]]]]) -> ShardIndex:
    index, labels = ShardIndex(), []
    for key, parts in samples:
        image = next((parts[suffix] for suffix in IMAGES if suffix in parts), None)
        if image is None:
            raise UsvitError(
                f"The sample {key} of the shard {shard} has no image, only {', '.join(sorted(parts))}. It "
                f"needs one of {', '.join(IMAGES)}. {_RENEW}"
            )
        index.keys.append(key)
        index.offsets.append(image[0])
        index.sizes.append(image[1])
        text = parts.get("txt", (-1, 0))
        index.text_offsets.append(text[0])
        index.text_sizes.append(min(text[1], MAX_TEXT_BYTES))
        labels.append(_label(file, shard, key, parts))
    missing = [key for key, label in zip(index.keys, labels, strict=True) if label is None]
    if len(missing) == len(labels):
        return index
    if missing:
        raise UsvitError(
            f"{len(missing)} of {len(labels)} samples of the shard {shard} have no label ({missing[0]}, ...). {_RENEW}"
        )
    index.labels = [str(label) for label in labels]
    index.numbers = not any(isinstance(label, str) for label in labels)
    return index


def _label(file: BinaryIO, shard: str, key: str, parts: dict[str, tuple[int, int]]) -> int | str | None:
    """Read a class number (``.cls``, or ``label`` or ``cls`` of ``.json``) or a class name (``.json``)."""
    for suffix in ("cls", "json"):
        if suffix not in parts:
            continue
        offset, size = parts[suffix]
        file.seek(offset)
        text = file.read(min(size, _MAX_LABEL_BYTES))
        try:
            value = int(text) if suffix == "cls" else json.loads(text)
            if suffix == "json":
                value = value.get("label", value.get("cls")) if isinstance(value, dict) else None
        except (ValueError, RecursionError) as error:
            raise UsvitError(f"Cannot read the label {key}.{suffix} of the shard {shard}: {error}. {_RENEW}") from error
        if value is None:
            continue
        number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_CLASSES
        if not number and not (isinstance(value, str) and 0 < len(value) <= _MAX_NAME):
            raise UsvitError(
                f"The label {key}.{suffix} of the shard {shard} is {str(value)[:50]!r}: expected a class number "
                f"from 0 to {MAX_CLASSES - 1}, or a name."
            )
        return value
    return None
