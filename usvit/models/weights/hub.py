"""Files of the Hugging Face hub: from its cache, or downloaded once."""

import http.client
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.models.weights.read import FILE_SUFFIXES
from usvit.models.weights.sources import cached
from usvit.web import RedirectRefused, WebLimits, open_url


class HubUnavailable(UsvitError):
    """Error about weights of the hub that are neither cached nor reachable."""


def hub_file(repository: str, files: tuple[str, ...], model: str, revision: str | None) -> Path:
    """Return the path of weights in the Hugging Face cache, into which they are downloaded if they are not there.

    Args:
        repository: Name of the repository, such as ``timm/resnet50.a1_in1k``.
        files: Names of the file, of which the first that exists is taken.
        model: Name of the network, for the error.
        revision: Commit of the repository; None for the present one.

    Raises:
        HubUnavailable: The file is neither cached nor reachable.
    """
    return cached(repository, files, revision) or _downloaded(repository, files, model, revision)


def _downloaded(repository: str, files: tuple[str, ...], model: str, revision: str | None) -> Path:
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "there is no connection to the hub"
    if not constants.HF_HUB_OFFLINE and _hub_answers():
        reason = f"the hub has none of {', '.join(files)} there"
        for file in files:
            try:
                return Path(hf_hub_download(repository, file, revision=revision))
            except EntryNotFoundError:
                continue  # not in this format: try the next
            except Exception as error:  # the exceptions depend on the HTTP library of the hub's client
                reason = " ".join(str(error).split())[:200]
                break
    raise HubUnavailable(
        f"The pre-trained weights of {model} ({repository}) are neither in the Hugging Face cache nor reachable: "
        f"{reason}. {without_hub()}"
    )


def hub_folder(repository: str, patterns: Sequence[str], revision: str | None, what: str) -> Path:
    """Return the folder of a repository in the Hugging Face cache, into which its files are downloaded if need be.

    Args:
        repository: Name of the repository, or its folder on this machine.
        patterns: Files to download.
        revision: Commit of the repository; None for the present one.
        what: What needs it, for the error.

    Raises:
        HubUnavailable: It is neither cached nor reachable.
    """
    from huggingface_hub import constants, snapshot_download

    shared: dict[str, Any] = {"revision": revision, "allow_patterns": list(patterns)}
    reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "there is no connection to the hub"
    for cached_only in (True, False):
        if not cached_only and (constants.HF_HUB_OFFLINE or not _hub_answers()):
            break
        try:
            return Path(snapshot_download(repository, local_files_only=cached_only, **shared))
        except Exception as error:  # the exceptions depend on the HTTP library of the hub's client
            reason = reason if cached_only else " ".join(str(error).split())[:200]
    raise HubUnavailable(
        f"{what} is no folder on this machine, and the repository {repository} is neither in the Hugging Face cache "
        f"nor reachable: {reason}."
    )


def _hub_answers() -> bool:
    """Check that a server answers at the hub's address, through the user's proxy if there is one.

    This comes first because the hub's own client retries for a minute before it gives up.
    """
    from huggingface_hub import constants

    try:
        with open_url(constants.ENDPOINT, WebLimits(0, 10.0), method="HEAD", timeout=10):
            return True
    except (urllib.error.HTTPError, RedirectRefused):
        return True
    except (OSError, http.client.HTTPException, ValueError):  # ValueError: HF_ENDPOINT is not an address
        return False


def without_hub() -> str:
    """Return what to pass if there are no weights of the hub."""
    return (
        "Pass --weights scratch to start from random weights, or --weights FILE with a copy of the file "
        f"({suffixes()})."
    )


def suffixes() -> str:
    """Return the suffixes of weight files, for an error."""
    return ", ".join(FILE_SUFFIXES)
