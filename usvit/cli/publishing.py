"""``usvit models push``, ``pull`` and ``sign``: pass a model on, and fetch one."""

from pathlib import Path
from typing import Annotated

import typer

_Model = Annotated[
    Path, typer.Argument(help="A run, one fold of it, or an export as safetensors.", metavar="RUN", show_default=False)
]
_Address = Annotated[
    str, typer.Argument(help="hf://OWNER/NAME, a folder, or an address such as s3://BUCKET/FOLDER.", metavar="ADDRESS")
]


def push(
    model: _Model,
    address: _Address,
    predictions: Annotated[
        bool,
        typer.Option("--predictions", help="Push predictions.csv, too: a row for each image, with its id and label."),
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="Make a new repository of the hub public.")] = False,
) -> None:
    """Copy a model to the Hugging Face hub, a folder or an fsspec address, with its hashes and a model card.

    The place must hold no files yet. The near-duplicate descriptions of training images (seen-*.copies) go along; an
    export with --no-descriptions has none. See 'usvit docs share-models'.
    """
    from usvit.publishing import push_model

    pushed = push_model(model, address, predictions=predictions, public=public)
    print(f"{len(pushed.files)} files, {'signed' if pushed.signed else 'not signed'}: {pushed.address}")
    print("For research use, not a medical device.")


def pull(
    address: _Address,
    out: Annotated[Path, typer.Argument(help="Folder to write; must be new or empty.", metavar="DIR")],
    require_signature: Annotated[
        Path | None, typer.Option(help="Public key (PEM) with which the model must be signed.", metavar="PUBKEY")
    ] = None,
) -> None:
    """Fetch a model, verify the SHA-256 of each file, and write it; nothing of it is executed.

    The folder is for 'usvit score --model'. An existing model is not overwritten.
    """
    from usvit.publishing import pull_model

    print(f"verified: {pull_model(address, out, require_signature=require_signature)}")


def sign(
    model: _Model,
    key: Annotated[Path, typer.Option(help="Private Ed25519 key (PEM, without password).", metavar="FILE")],
) -> None:
    """Sign the files of a model with an Ed25519 key, for 'usvit score --require-signature'.

    Writes model-files.json into the folder. 'openssl genpkey -algorithm ed25519 -out key.pem' makes a key.
    """
    from usvit.publishing import sign_model

    print(f"signed: {sign_model(model, key)}")
