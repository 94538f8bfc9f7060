"""Software bill of materials of a kit, in CycloneDX 1.6 (JSON; https://cyclonedx.org/docs/1.6/json/)."""

from collections.abc import Sequence
from importlib.metadata import Distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from usvit.kit.install import platform
from usvit.kit.licences import licences_of, spdx_of
from usvit.plain_data import Json


def bill_of_materials(wheels: Sequence[tuple[Distribution, str]], extras: Sequence[str]) -> Json:
    """Return the SBOM of wheels.

    Args:
        wheels: Metadata and SHA-256 of each wheel; the first one is usvit.
        extras: Extras of usvit that are installed.
    """
    components = [_component(wheel, sha256) for wheel, sha256 in wheels]
    by_name: dict[str, str] = {canonicalize_name(one["name"]): one["bom-ref"] for one in components}
    python, system = platform()
    properties = {"usvit:python": python, "usvit:platform": system, "usvit:extras": ",".join(extras)}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {**components[0], "type": "application"},
            "properties": [{"name": name, "value": value} for name, value in properties.items()],
        },
        "components": components[1:],
        "dependencies": [
            {"ref": one["bom-ref"], "dependsOn": sorted(_needs(wheel, extras if at == 0 else (), by_name))}
            for at, (one, (wheel, _)) in enumerate(zip(components, wheels, strict=True))
        ],
    }


def _component(wheel: Distribution, sha256: str) -> Json:
    purl = f"pkg:pypi/{canonicalize_name(wheel.name)}@{wheel.version.replace('+', '%2B')}"
    if expression := spdx_of(wheel.metadata):
        licences: list[Json] = [{"expression": expression}]
    else:
        licences = [{"license": {"name": name}} for name in licences_of(wheel.metadata)]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": wheel.name,
        "version": wheel.version,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
        **({"licenses": licences} if licences else {}),
        "purl": purl,
    }


def _needs(wheel: Distribution, extras: Sequence[str], by_name: dict[str, str]) -> set[str]:
    needs = [Requirement(line) for line in wheel.requires or ()]
    holds = [
        one for one in needs if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in ("", *extras))
    ]
    return {by_name[name] for one in holds if (name := canonicalize_name(one.name)) in by_name}
