"""``usvit kit``: install usvit on machines without network."""

from pathlib import Path
from typing import Annotated

import typer

from usvit.cli.settings import takes_options
from usvit.kit import KitSettings

app = typer.Typer(name="kit", help="Build, verify and install air-gap kits.", no_args_is_help=True)
_Kit = Annotated[Path, typer.Argument(help="Folder of the kit.", metavar="KIT")]
_Sha256 = Annotated[
    str | None, typer.Option("--sha256", help="SHA-256 of SHA256SUMS, which 'usvit kit build' printed.", metavar="HEX")
]


@app.command("build")
@takes_options()
def build(
    wheel: Annotated[Path, typer.Argument(help="Wheel of usvit; 'make wheel' writes one.", metavar="WHEEL")],
    out: Annotated[Path, typer.Option(help="Folder to write; must be new or empty.", metavar="DIR")],
    settings: KitSettings,
) -> None:
    """Collect everything that installs usvit without network: packages with hashes, weights, documentation, SBOM.

    The packages are those of this Python and system. See 'usvit docs install'.
    """
    from usvit.kit import build_kit

    built = build_kit(wheel, out, settings=settings)
    print(f"{built.path}: {built.n_packages} packages, {built.n_bytes / 1e6:.1f} MB")
    print(f"SHA-256 of SHA256SUMS: {built.sha256}")
    print("There: python install.py install --into DIR")


@app.command("verify")
def verify(kit: _Kit, sha256: _Sha256 = None) -> None:
    """Compare every file of a kit with its hash, and refuse missing, changed and further files."""
    from usvit.kit import verify_kit

    print(f"The kit is as it was built. SHA-256 of SHA256SUMS: {verify_kit(kit, sha256)}")


@app.command("install")
def install(
    kit: _Kit,
    into: Annotated[Path, typer.Option(help="Folder of the new virtual environment.", metavar="DIR")],
    sha256: _Sha256 = None,
) -> None:
    """Verify a kit, and install it into a new virtual environment without network.

    Without usvit, install.py in the kit does the same.
    """
    from usvit.kit import install_kit

    print(f"Installed: {install_kit(kit, into, sha256).with_name('usvit')} --help")
