"""The command line: one file a command; each parses, calls one function, and prints.

Nothing heavy is imported here or at the top of a command's file: ``usvit cv --help`` answers
before PyTorch would have been found.
"""

import io
import sys
import time
import traceback

import typer

from usvit.cli import (
    bench,
    compare,
    cv,
    data,
    evaluate,
    explain,
    models,
    pretrain,
    recalibrate,
    report,
    score,
    study,
    transfer,
)
from usvit.errors import EXIT_BUG, EXIT_STOPPED, UsvitError
from usvit.terminal import plain_output

GRACE_SECONDS = 20
"""torchrun ends all processes with the first that ends. So one that leaves the words to another lets it end first; if
nothing has ended it by then, it says itself what it knows."""
PRIVATE = frozenset(
    {"score", "evaluate", "recalibrate", "cv", "train", "data", "pretrain", "transfer", "study", "explain", "report"}
)
"""Commands whose input may name patients."""

app = typer.Typer(
    name="usvit",
    help="Classification of breast-ultrasound images that can be trusted. For research use, not a medical device.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("cv")(cv.cv)
app.command("train")(cv.train)
app.command("pretrain")(pretrain.pretrain)
app.command("transfer")(transfer.transfer)
app.command("study")(study.study)
app.command("evaluate")(evaluate.evaluate)
app.command("recalibrate")(recalibrate.recalibrate)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("score")(score.score)
app.command("explain")(explain.explain)
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        from usvit import __version__

        print(__version__)
        raise typer.Exit()


def main() -> None:
    """Run the command line; a user's mistake becomes one paragraph and exit code 2, a bug a traceback and 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a folder's name that is no UTF-8; as stderr does
    with plain_output():
        _run()


def _run() -> None:
    try:
        app()
    except UsvitError as error:
        # Stopped, as asked, is no error; of several processes, one says what all end with.
        text = str(error)
        if not text and error.exit_code != EXIT_STOPPED:
            time.sleep(GRACE_SECONDS)
            text = "" if error.__cause__ is None else str(error.__cause__)
        said = text if error.exit_code == EXIT_STOPPED or not text else f"Error: {text}"
        print(said, file=sys.stderr, end="\n" if said else "")
        sys.exit(error.exit_code)
    except Exception as error:
        if sys.argv[1:2] and sys.argv[1] in PRIVATE:
            print(without_values(error), file=sys.stderr)
        else:
            traceback.print_exc()
        print(
            "\nThis is a bug of usvit, not a mistake of yours: please report it with the lines above "
            "(check that they name no patient).",
            file=sys.stderr,
        )
        sys.exit(EXIT_BUG)


def without_values(error: BaseException) -> str:
    """A traceback of places and kinds of errors: an error's own words may quote a file, a name or a table's cell."""
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = "" if earlier is None else f"{without_values(earlier)}\nwhich led to\n\n"
    places = "".join(traceback.format_tb(error.__traceback__))
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return (
        f"{before}Traceback (most recent call last):\n{places}{kind} (its words are left out: they may name a patient)"
    )
