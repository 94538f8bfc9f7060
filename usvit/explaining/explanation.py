"""``usvit explain``: show where a network looks, or what its layers do."""

from pathlib import Path

from usvit.config.explaining import ExplainSettings
from usvit.config.keywords import takes_settings
from usvit.data.datasets import DataRoot, roots_from
from usvit.errors import UsvitError
from usvit.explaining.of_run import explain_run
from usvit.explaining.of_weights import explain_weights
from usvit.explaining.output import Explanation
from usvit.explaining.request import ExplainRequest
from usvit.models import UPSTREAM
from usvit.progress import Progress, shown_progress
from usvit.records import ModelMetadata, load_record, load_run_record, run_kinds


@takes_settings
def explain(
    run: str | Path | None = None,
    *,
    settings: ExplainSettings,
    data_root: DataRoot = None,
    progress: Progress | None = None,
) -> Explanation:
    """Show where networks look: those of a run on images that they have not been trained on, or any weights.

    At most one of ``images``, ``image_ids`` and ``errors`` may be given. ``model`` and ``weights`` name a
    network instead of ``run``.

    Args:
        run: folder of a finished run, or of one of its folds. For a run of ``cross_validate`` or ``train``, each image
            is explained by the network of the fold that tested it; ``distance``, ``residuals``, ``positions``,
            ``filters`` and ``mixing`` describe the network of its first fold. Other weights have no test images, so
            they need ``source`` or ``path``: a run of ``pretrain`` or ``transfer``, ``MODEL`` (the hub's recommended
            weights), ``MODEL=WEIGHTS``, or a file.
        settings: see ``ExplainSettings``.
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
    choice = _choice(run, settings.model, settings.weights)
    request = ExplainRequest(settings, roots_from(data_root), shown_progress(progress))
    if settings.source is None and settings.path is None and _has_test_images(Path(choice)):
        return explain_run(Path(choice), request)
    return explain_weights(choice, request)


def _choice(run: str | Path | None, model: str | None, weights: str | None) -> str:
    if (run is None) == (model is None and weights is None):
        raise UsvitError("Name one network: a run (runs/x), a fold of one, or --model with --weights.")
    if run is not None:
        return str(run)
    if model is not None:
        return model if weights is None else f"{model}={weights}"
    assert weights is not None  # one of the three is given
    return weights


def _has_test_images(path: Path) -> bool:
    """Return whether a folder can only be a run of ``usvit cv`` or ``train``, or a fold of one."""
    if not path.is_dir():
        return False
    for folder in (path, path.absolute().parent):
        if (folder / "run.json").is_file():
            return run_kinds()[load_run_record(folder).kind].of_folds
    metadata = path / "model.json"
    return not metadata.is_file() or load_record(metadata, ModelMetadata).stage != UPSTREAM
