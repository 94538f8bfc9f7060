"""``usvit data coarse``: write the coarse classes of ImageNet-1k."""

import shlex
from pathlib import Path
from typing import Annotated

import typer


def coarse(
    wordnet: Annotated[
        Path, typer.Option(help="data.noun of WordNet 3.0 (Debian: package wordnet-base).", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option(help="CSV file to write, for source.coarse.", metavar="FILE")],
) -> None:
    """Write the 127 coarse classes of ImageNet-1k (Huh et al. 2016), from which Grafit learns.

    They are made from WordNet by the rule of the paper, and compared with the classes that its authors published.
    """
    from usvit.upstream.sources.wordnet import coarse_imagenet

    count = coarse_imagenet(wordnet, out)
    print(f"{out}: 1000 classes in {count} coarse ones")
    print(f"next: usvit pretrain --recipe grafit --set source.coarse={shlex.quote(str(out))} --data-root imagenet=DIR")
