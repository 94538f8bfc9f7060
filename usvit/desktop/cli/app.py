"""``usvit app``: open the page without which a user would need a shell."""

from usvit.cli.settings import takes_options
from usvit.desktop.settings import AppSettings


@takes_options()
def app(settings: AppSettings) -> None:
    """Open a page in which images are scored, read and tested, until it is closed there or by Ctrl-C.

    The page is served on this machine alone. It runs the same commands as the command line, shows each of them, and
    writes the same folders. See 'usvit docs app'.
    """
    from usvit.desktop import open_app

    open_app(settings=settings)
