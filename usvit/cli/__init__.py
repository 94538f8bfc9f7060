"""The command line: one file per command. Each command parses its options, calls one public function, and prints.

The module of a command is imported when the command runs (``commands.py``), and imports heavy libraries inside its
function, so that ``usvit cv --help`` answers faster than PyTorch can be imported.
"""

import errno
import gc
import io
import os
import re
import sys
import time
import traceback

import typer

from usvit.cli.commands import LazyGroup, find_command
from usvit.errors import COMMAND_LINE, EXIT_BUG, EXIT_STOPPED, EXIT_USER, UsvitError, shortened
from usvit.terminal import plain_output
from usvit.threads import configure_threads

GRACE_SECONDS = 20
"""Seconds that a process without an error message waits for the process that has one. torchrun stops all processes as
soon as one exits, so the process with the message must exit first. After the wait, the process prints what it knows."""
COLLECT_AFTER = 10_000
"""New objects after which Python looks for unused cycles of them, instead of 700. The libraries make a million objects
that stay; to look through these as often as by default takes almost a second of each start."""

_SPACE = "Free some space and run the same command again; what was finished is kept."
_ACCESS = "Change the permissions, or choose another folder."
MACHINE_FAULTS = {
    errno.ENAMETOOLONG: "Shorten the name.",
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "Raise the limit (ulimit -f unlimited), or choose another folder.",
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: _ACCESS,
    errno.EIO: "The disk or the connection to it may be damaged.",
    errno.ESTALE: "The connection to the disk was interrupted. Run the same command again.",
    errno.EMFILE: "Raise the limit (ulimit -n).",
    errno.ELOOP: "The link leads to itself: name the file itself.",
    errno.ENFILE: "Too many files are open on this machine. Run the same command again later.",
}
"""Errors of the system that are no bugs of usvit -> what the user can do."""

app = typer.Typer(
    name="usvit",
    cls=LazyGroup,
    help="Train and evaluate classifiers of breast-ultrasound images. For research use, not a medical device.",
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_GREETING = """usvit {version}: classify breast-ultrasound images. For research use, not a medical device.

  usvit cv                                       try it: train and test on generated images, with a report
  usvit cv --dataset folder --data-root DIR      your own images, one folder for each class
  usvit score --model RUN --input DIR --out OUT  score images or DICOM with the result

'usvit docs first-run' explains these steps. 'usvit --help' lists all commands."""


@app.callback(invoke_without_command=True)
def _options(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show warnings and errors, but no other messages."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Show debugging messages, too."),
) -> None:
    from usvit.logging import configure_logging

    configure_logging(verbose - quiet)
    if version or ctx.invoked_subcommand is None:
        from usvit import __version__

        print(__version__ if version else _GREETING.format(version=__version__))
        raise typer.Exit()


def main() -> None:
    """Run the command line.

    A user's mistake prints one paragraph and exits with 2. A bug prints a traceback and exits with 1.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of folders may not be UTF-8
    os.environ[COMMAND_LINE] = "1"  # for child processes, too
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    configure_threads()  # before anything imports PyTorch
    with plain_output():
        _run()


def _run() -> None:
    try:
        app()
    except UsvitError as error:
        # A requested stop is not an error. Of several processes, one prints the text for all.
        text = str(error)
        if not text and error.exit_code != EXIT_STOPPED:
            time.sleep(GRACE_SECONDS)
            text = "" if error.__cause__ is None else str(error.__cause__)
        said = text if error.exit_code == EXIT_STOPPED or not text else f"Error: {text}"
        print(said, file=sys.stderr, end="\n" if said else "")
        sys.exit(error.exit_code)
    except Exception as error:
        private = private_input(sys.argv[1:])
        fault = machine_fault(error, private) if isinstance(error, (OSError, RuntimeError)) else name_fault(error)
        if fault:
            print(f"Error: {fault}", file=sys.stderr)
            sys.exit(EXIT_USER)
        if private:
            print(without_values(error), file=sys.stderr)
        else:
            traceback.print_exc()
        print(
            "\nThis is a bug in usvit, not a mistake of yours. Please report it with the lines above "
            "(check that they do not name a patient).",
            file=sys.stderr,
        )
        sys.exit(EXIT_BUG)


def machine_fault(error: OSError | RuntimeError, private: bool) -> str | None:
    """Return what the system did not allow and what to do; None if the error may be a bug.

    Args:
        error: The error.
        private: Whether the name of the file may name a patient, so that it is left out.
    """
    code, name = getattr(error, "errno", None), getattr(error, "filename", None)
    if code is None and (found := re.search(r"\(os error (\d+)\)", str(error))):  # libraries in Rust
        code = int(found[1])
    elif code is None and str(error).startswith("Symlink loop from"):  # Path.resolve before Python 3.13
        code = errno.ELOOP
    if code not in MACHINE_FAULTS:
        return None
    file = "" if private or name is None else f" {shortened(os.fsdecode(name))}:"
    return f"A file cannot be read or written:{file} {os.strerror(code)}. {MACHINE_FAULTS[code]}"


def name_fault(error: Exception) -> str | None:
    """Return which key of a record cannot hold a name, because it is not UTF-8; None for other errors."""
    from pydantic import ValidationError

    problems = error.errors(include_url=False, include_input=False) if isinstance(error, ValidationError) else []
    keys = [".".join(map(str, problem["loc"])) for problem in problems if problem["type"] == "string_unicode"]
    if not keys:
        return None
    return f"The key {keys[0]} cannot hold the name of a file or folder that is not valid UTF-8. Rename it."


def private_input(arguments: list[str]) -> bool:
    """Return whether the command of a command line reads files that may contain names of patients."""
    names = [one for one in arguments if not one.startswith("-")]  # no option before the command takes a value
    entry = find_command(names[0]) if names else None
    return entry is not None and entry.private


def without_values(error: BaseException) -> str:
    """Format a traceback without the messages of its errors, which may quote a file, a name or a table cell."""
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = "" if earlier is None else f"{without_values(earlier)}\nwhich led to\n\n"
    places = "".join(traceback.format_tb(error.__traceback__))
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    hidden = "(the message is left out because it may name a patient)"
    return f"{before}Traceback (most recent call last):\n{places}{kind} {hidden}"
