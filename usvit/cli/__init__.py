"""The command line: one file per command. Each command parses its options, calls one public function, and prints.

Neither this module nor the top of a command's module imports heavy libraries, so that ``usvit cv --help`` answers
faster than PyTorch can be imported.
"""

import gc
import inspect
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
    dicom,
    ensemble,
    evaluate,
    explain,
    models,
    node,
    plan,
    pretrain,
    recalibrate,
    report,
    retest,
    score,
    shape,
    study,
    test,
    transfer,
)
from usvit.errors import EXIT_BUG, EXIT_STOPPED, UsvitError
from usvit.terminal import plain_output
from usvit.threads import configure_threads

GRACE_SECONDS = 20
"""Seconds that a process without an error message waits for the process that has one. torchrun stops all processes as
soon as one exits, so the process with the message must exit first. After the wait, the process prints what it knows."""
COLLECT_AFTER = 10_000
"""New objects after which Python looks for unused cycles of them, instead of 700. The libraries make a million objects
that stay; to look through these as often as by default takes almost a second of each start."""
PRIVATE = frozenset(
    {
        *("score", "evaluate", "recalibrate", "cv", "train", "data", "pretrain", "transfer", "test", "study"),
        *("explain", "report", "plan", "ensemble", "retest", "node", "dicom"),
    }
)
"""Commands whose input may contain names of patients."""

app = typer.Typer(
    name="usvit",
    help="Train and evaluate classifiers of breast-ultrasound images. For research use, not a medical device.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("cv")(cv.cv)
app.command("train")(cv.train)
app.command("pretrain")(pretrain.pretrain)
app.command("transfer")(transfer.transfer)
app.command("test")(test.test)
app.command("ensemble")(ensemble.ensemble)
app.command("evaluate")(evaluate.evaluate)
app.command("recalibrate")(recalibrate.recalibrate)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("score")(score.score)
app.command("explain")(explain.explain)
app.command("retest")(retest.retest)
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")
app.add_typer(dicom.app, name="dicom")
app.add_typer(models.app, name="models")
app.add_typer(node.app, name="node")
app.add_typer(plan.app, name="plan")
app.add_typer(shape.app, name="shape")
app.add_typer(study.app, name="study")
# Typer keeps the line breaks of a docstring after its first paragraph.
for _inner in (app, data.app, dicom.app, models.app, node.app, plan.app, shape.app, study.app):
    for _command in _inner.registered_commands:
        _paragraphs = inspect.cleandoc(_command.help or _command.callback.__doc__ or "").split("\n\n")
        _command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in _paragraphs)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show warnings and errors, but no other messages."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Show debugging messages, too."),
) -> None:
    from usvit.logging import configure_logging

    configure_logging(verbose - quiet)
    if version:
        from usvit import __version__

        print(__version__)
        raise typer.Exit()


def main() -> None:
    """Run the command line.

    A user's mistake prints one paragraph and exits with 2. A bug prints a traceback and exits with 1.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of folders may not be UTF-8
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
        if sys.argv[1:2] and sys.argv[1] in PRIVATE:
            print(without_values(error), file=sys.stderr)
        else:
            traceback.print_exc()
        print(
            "\nThis is a bug in usvit, not a mistake of yours. Please report it with the lines above "
            "(check that they do not name a patient).",
            file=sys.stderr,
        )
        sys.exit(EXIT_BUG)


def without_values(error: BaseException) -> str:
    """Format a traceback without the messages of its errors, which may quote a file, a name or a table cell."""
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = "" if earlier is None else f"{without_values(earlier)}\nwhich led to\n\n"
    places = "".join(traceback.format_tb(error.__traceback__))
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    hidden = "(the message is left out because it may name a patient)"
    return f"{before}Traceback (most recent call last):\n{places}{kind} {hidden}"
