"""``usvit review``: begin or go on with a study, and serve it until it is interrupted."""

import json
import logging
import shlex
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from usvit.config.fields import Option
from usvit.config.keywords import takes_settings
from usvit.config.sections import Section
from usvit.errors import UsvitError
from usvit.progress import Progress, shown_progress
from usvit.reviewing.answers import StudyAnswers, file_stamp, refuse_unknown_truths, study_folder
from usvit.reviewing.listening import HERE, listening_socket, origin_of, server_of
from usvit.reviewing.pictures import StudyPictures
from usvit.reviewing.server import ReviewServer
from usvit.reviewing.settings import ReviewSettings, load_review
from usvit.scoring import Readers, ReadSettings, ScoringItem, file_sha256_of
from usvit.wording import plural

logger = logging.getLogger(__name__)


class ServeSettings(Section):
    """Where a study is served."""

    host: Annotated[str, Option(metavar="ADDRESS"), Field(pattern=r"^[A-Za-z0-9._:-]{1,253}$")] = "127.0.0.1"
    """Address to listen on; another than that of this machine alone needs ``certificate`` and ``private_key``."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8750
    """Port to listen on; 0: any free one."""
    name: Annotated[str | None, Option(metavar="HOST"), Field(pattern=r"^[A-Za-z0-9._-]{1,253}$")] = None
    """Name or address of this machine in the links. (default: ``host``)"""
    certificate: Annotated[Path | None, Option(metavar="FILE")] = None
    """Certificate of this machine, as PEM, for HTTPS."""
    private_key: Annotated[Path | None, Option(metavar="FILE")] = None
    """Key of the certificate, as PEM without a pass phrase."""
    browser: bool = True
    """Open the page in the browser."""

    @model_validator(mode="after")
    def _safe(self) -> "ServeSettings":
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together: give both")
        if self.host not in HERE and self.certificate is None:
            raise ValueError(
                f"host {self.host} serves the cases to other machines, which needs HTTPS: give certificate and "
                "private_key"
            )
        if self.host in ("0.0.0.0", "::") and self.name is None:
            raise ValueError(f"host {self.host} is no address that a reader can open: give name as well")
        return self


@takes_settings
def review(study: str | Path, settings: ServeSettings, *, progress: Progress | None = None) -> None:
    """Serve a study to its readers until Ctrl-C or SIGTERM; a study that was begun goes on where it was.

    Prints the address. Each answer is saved at once, so that the server may be ended at any time.

    Args:
        study: the file of the study (``usvit docs review``).
        settings: see ``ServeSettings``.
        progress: shown while the cases are opened. Default: a bar in a terminal, lines in a notebook.

    Returns:
        When the server has ended.

    Raises:
        UsvitError: the file cannot be used; images are missing, cannot be read, or have changed since the study began;
            the folder holds another study; or the port is in use.

    Example:
        >>> import usvit
        >>> usvit.review("study.yaml", port=8750)  # doctest: +SKIP
    """

    def announce(server: ReviewServer) -> None:
        server.export_command = f"usvit review export {shlex.quote(str(study))}"
        print(f"{server.answers.settings.title}: open {server.host_link} (this link works once)", flush=True)
        place = server.answers.database.path
        print(f"Answers: {place}. End with Ctrl-C; every answer is saved at once.", flush=True)
        if settings.browser:
            webbrowser.open(server.host_link)

    serve_study(load_review(study), settings, shown_progress(progress), announce)


def serve_study(
    plan: ReviewSettings, settings: ServeSettings, progress: Progress, announce: Callable[[ReviewServer], None]
) -> None:
    """Serve a study until SIGINT or SIGTERM, and call ``announce`` when it is ready.

    Raises:
        UsvitError: see ``review``.
    """
    assert plan.out is not None
    with (
        study_folder(plan.out).opened(private=True, verb="serving"),
        listening_socket(settings.host, settings.port) as listening,
        StudyPictures(plan.source.crop) as pictures,
    ):
        pictures.start()
        answers = open_study(plan, progress)
        try:
            _serve(answers, pictures, listening, settings, announce)
        finally:
            answers.close()


def open_study(settings: ReviewSettings, progress: Progress) -> StudyAnswers:
    """Begin a study, or open one that has begun, and check that its images are those with which it began.

    Raises:
        UsvitError: see ``review``.
    """
    assert settings.out is not None
    if StudyAnswers.has_begun(settings.out):
        answers = StudyAnswers(settings.out, settings)
        try:
            _refuse_changed_images(answers, progress)
        except BaseException:
            answers.close()
            raise
        return answers
    from usvit.reviewing.sources import find_cases  # imports PyTorch, which a study that goes on does not need

    n = settings.source.cases
    found = find_cases(settings.source, None if n is None else n + settings.training, settings.seed, progress)
    if len(found.cases) - settings.training < max(1, settings.repeats):
        raise UsvitError(
            f"The source has {plural(len(found.cases), 'case')}, too few for {settings.training} training cases and "
            f"{settings.repeats} that are read twice."
        )
    refuse_unknown_truths(found, settings)
    return StudyAnswers.begin(settings.out, settings, found)


def _refuse_changed_images(answers: StudyAnswers, progress: Progress) -> None:
    """Read the files again whose size or time is not that of the beginning, and compare them."""
    rows = [row for row in answers.rows("SELECT * FROM images") if file_stamp(row["item"]) != row["stamp"]]
    items = [
        ScoringItem(name, location, member)
        for name, location, member, _ in map(json.loads, (row["item"] for row in rows))
    ]
    reading = ReadSettings(image_size=1, resize="squash", crop="whole")
    with Readers(reading, workers=2, timeout=60, memory_gb=4) as readers:
        hashes = [*readers.map_calls(file_sha256_of, ((item, reading) for item in items))]
    changed = [
        (item.source, "is missing or cannot be read" if found is None else "has changed")
        for item, row, found in zip(items, rows, hashes, strict=True)
        if found != row["file_sha256"]
    ]
    if changed:
        source, what = changed[0]
        others = f", and {plural(len(changed) - 1, 'other')} as well" if len(changed) > 1 else ""
        raise UsvitError(
            f"The image {source} {what} since the study began{others}. Restore the files; the answers are kept."
        )


def _serve(
    answers: StudyAnswers,
    pictures: StudyPictures,
    listening: socket.socket,
    settings: ServeSettings,
    announce: Callable[[ReviewServer], None],
) -> None:
    https = settings.certificate is not None
    announced, *also = (origin_of(name, listening, https=https) for name in (settings.name or settings.host, *HERE))
    server = ReviewServer(answers, pictures, announced, also=tuple(also))
    running = server_of(server.app, certificate=settings.certificate, private_key=settings.private_key)
    announce(server)
    running.run(sockets=[listening])
