"""``usvit explain``: show where a network looks, or what its layers do."""

from collections.abc import Sequence
from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.data.datasets import DataRoot, roots_from
from usvit.errors import UsvitError, unknown
from usvit.explaining.methods import METHODS
from usvit.explaining.of_run import explain_run
from usvit.explaining.of_weights import explain_weights
from usvit.explaining.output import Explanation
from usvit.explaining.request import ExplainRequest
from usvit.models import UPSTREAM
from usvit.progress import Progress, shown_progress
from usvit.records import ModelMetadata, load_record, load_run_record


@checked_arguments
def explain(
    run: str | Path | None = None,
    *,
    method: str | None = None,
    images: int | None = None,
    image_ids: Sequence[str] = (),
    errors: int | None = None,
    target: str | None = None,
    layers: Sequence[str | int] = (),
    model: str | None = None,
    weights: str | Path | None = None,
    source: str | None = None,
    path: str | Path | None = None,
    out: str | Path | None = None,
    include_images: bool = False,
    data_root: DataRoot = None,
    progress: Progress | None = None,
) -> Explanation:
    """Show where networks look: those of a run on images that they have not been trained on, or any weights.

    At most one of ``images``, ``image_ids`` and ``errors`` may be given.

    Args:
        run: folder of a finished run, or of one of its folds. For a run of ``cross_validate`` or ``train``, each image
            is explained by the network of the fold that tested it; ``distance``, ``residuals``, ``positions``,
            ``filters`` and ``mixing`` describe the network of its first fold. Other weights have no test images, so
            they need ``source`` or ``path``: a run of ``pretrain`` or ``transfer``, ``MODEL`` (the hub's recommended
            weights), ``MODEL=WEIGHTS``, or a file.
        method: one of ``METHODS``; None: ``rollout``, or the closest method that the architecture supports.
        images: number of images. Those of a run are taken from the classes in turn, those of a source are drawn with a
            fixed seed; all images if there are fewer.
        image_ids: ids of the images; those of a source are its names of files.
        errors: explain this many of the most confident errors; only for a run of ``cross_validate`` or ``train``.
        target: class whose score ``gradcam`` and ``occlusion`` explain; None: the predicted class of each image.
        layers: layers of ``attention`` (default: the last) and ``mixing`` (default: all): numbers from 1 for the first,
            or from -1 for the last; names; ``all``.
        model, weights: network and weights instead of ``run``. ``weights`` is ``hub``, ``hub:UPSTREAM``, a file or a
            run; default: the hub's recommended weights.
        source: ``NAME`` or ``NAME:SPLIT`` of ``usvit pretrain --list-sources``; images are prepared as the weights
            require.
        path: folder of images, which are explained without labels unless ``source`` is ``folder``; address of
            ``shards``.
        out: folder to write; None: ``explain`` in ``run``; for weights that are not a run, a folder in ``runs``.
        include_images: show the images whatever their licence allows; keep the pictures to yourself.
        data_root: folder of the data set, or a mapping of the names of data sets to folders; None: ``$USVIT_DATA``.
        progress: shows how many images are done.

    Returns:
        The folder of the pictures, and the entry of the method in ``explain.json``.

    Raises:
        UsvitError: an argument is wrong, or the method does not support the network; nothing has been written.

    Example:
        >>> import usvit
        >>> explanation = usvit.explain("runs/small", method="occlusion", images=2)
        >>> len(explanation.entry.images)
        2
    """
    if method is not None and method not in METHODS:
        raise unknown("method", method, METHODS)
    if sum((images is not None, bool(image_ids), errors is not None)) > 1:
        raise UsvitError("Pass only one of --images, --image-id and --errors: each selects the images to explain.")
    choice = _choice(run, model, weights)
    request = ExplainRequest(
        method=method,
        layers=tuple(map(str, layers)),
        images=images,
        image_ids=tuple(image_ids),
        errors=errors,
        target=target,
        source=source,
        path=None if path is None else str(path),
        out=None if out is None else Path(out),
        include_images=include_images,
        roots=roots_from(data_root),
        progress=shown_progress(progress),
    )
    if source is None and path is None and _has_test_images(Path(choice)):
        return explain_run(Path(choice), request)
    return explain_weights(choice, request)


def _choice(run: str | Path | None, model: str | None, weights: str | Path | None) -> str:
    if (run is None) == (model is None and weights is None):
        raise UsvitError("Name one network: a run (runs/x), a fold of one, or --model with --weights.")
    if run is not None:
        return str(run)
    if model is not None:
        return model if weights is None else f"{model}={weights}"
    return str(weights)


def _has_test_images(path: Path) -> bool:
    """Return whether a folder can only be a run of ``usvit cv`` or ``train``, or a fold of one."""
    if not path.is_dir():
        return False
    for folder in (path, path.absolute().parent):
        if (folder / "run.json").is_file():
            return load_run_record(folder).kind not in ("pretrain", "transfer", "test")
    metadata = path / "model.json"
    return not metadata.is_file() or load_record(metadata, ModelMetadata).stage != UPSTREAM
