"""``usvit app``: serve the page on this machine until it is closed."""

import webbrowser

from usvit.config.keywords import takes_settings
from usvit.desktop.server import AppServer
from usvit.desktop.settings import AppSettings
from usvit.desktop.work import AppWork
from usvit.reviewing import HERE, listening_socket, origin_of, server_of


@takes_settings
def open_app(settings: AppSettings) -> None:
    """Open a page in which images are scored, read and tested without a shell.

    The page is served on this machine alone, to whoever has the link that is printed. It calls the same functions and
    writes the same folders as the command line. It ends by its button, by Ctrl-C or by SIGTERM, and stops what runs.

    Args:
        settings: see ``AppSettings``.

    Returns:
        When the page has been ended.

    Raises:
        UsvitError: the port is in use.

    Example:
        >>> import usvit
        >>> usvit.open_app()  # doctest: +SKIP
    """
    work = AppWork(settings)

    def close() -> None:
        running.should_exit = True

    with listening_socket(HERE[0], settings.port) as listening:
        origin, *also = (origin_of(name, listening) for name in HERE)
        server = AppServer(work, origin, also=tuple(also), close=close)
        running = server_of(server.app)
        print(f"usvit: open {server.link} (this link works once). End with Ctrl-C.", flush=True)
        if settings.browser:
            webbrowser.open(server.link)
        try:
            running.run(sockets=[listening])
        finally:
            work.close()
