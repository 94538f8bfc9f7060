"""Key of the cached pixels of public data sets, with which a second run on the same images starts seconds sooner.

An entry (``array_cache``) belongs to all images of a run together, with their size and order. Its key changes if the
bytes of one of the files change, if an image should have other pixels (the hashes of the manifest), or if they are
decoded by another version of a library or resized in another way. Pixels are kept after they were compared with the
hashes of the manifest, so an entry that is found has the pixels of the manifest and of the files, however the files
were changed. Hashing the files takes a small part of the time of decoding them. Pixels of private data sets are never
kept.
"""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from usvit.data.datasets import Manifest, decoder_versions, mask_names
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.resources import usable_cores

VERSION = 1
"""To be increased whenever images or masks are resized in another way."""
HASHED_BYTES = 4_000_000_000
"""Most bytes of files that are hashed for a key. Data sets with more, such as cine loops, are decoded in each run."""


def pixels_key(manifest: Manifest, preprocessing: Preprocessing, with_lesions: bool) -> str | None:
    """Return the key of the pixels of all usable images of a manifest.

    Returns:
        None if a data set is private, or if files cannot be read or are too large to be read for a key.
    """
    if not manifest.is_public:
        return None
    settings = (preprocessing.image_size, preprocessing.resize, preprocessing.crop, with_lesions)
    digest = hashlib.sha256(json.dumps([*decoder_versions(), VERSION, *settings]).encode())
    rows = manifest.usable
    columns = (rows.dataset, rows.path, rows.frame, rows.mask_path, rows.sha256)
    images = [
        ([manifest.roots[dataset] / name for name in (path, *mask_names(masks))], int(frame), sha256)
        for dataset, path, frame, masks, sha256 in zip(*columns, strict=True)
    ]
    hashes = _file_hashes({path for paths, _, _ in images for path in paths})
    if hashes is None:
        return None
    for paths, frame, sha256 in images:
        digest.update(json.dumps([[hashes[path] for path in paths], frame, sha256]).encode())
    return digest.hexdigest()


def _file_hashes(paths: set[Path]) -> dict[Path, str] | None:
    """Return the SHA-256 of each file; None if one cannot be read, or all together have more than ``HASHED_BYTES``."""
    listed = sorted(paths)
    try:
        if sum(path.stat().st_size for path in listed) > HASHED_BYTES:
            return None
        with ThreadPoolExecutor(usable_cores()) as pool:  # hashing releases the interpreter lock
            return dict(zip(listed, pool.map(partial(sha256_of_file, limit=HASHED_BYTES), listed), strict=True))
    except (OSError, UsvitError):
        return None
