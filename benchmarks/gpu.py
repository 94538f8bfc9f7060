"""Measure usvit on the GPU of this machine, piece by piece, and write docs/benchmarks-gpu.md from the results.

    python benchmarks/gpu.py --out DIR                    # at most 8.5 minutes; the same command continues
    python benchmarks/gpu.py --out DIR --page             # write the page, from the results alone
    python benchmarks/gpu.py --out DIR --tiny             # prove on the CPU that every piece runs
    python benchmarks/gpu.py --list                       # the measurements and their estimated seconds

Every measurement runs in its own process with a time limit, so that a crash, a lack of memory or a hang costs only this
measurement. ``DIR/gpu.json`` is rewritten after each of them. Another call skips what is in the file already (with
``--again``, it measures the chosen pieces once more), and starts nothing whose estimated time does not fit into what is
left of ``--minutes``. The exit code is 0 if nothing is left to measure, and 3 if the same command would continue.

On a machine without network, PyTorch, torchvision and timm are often installed, and other packages are not. Prepare it
as follows, where the first command runs there, and the others on a machine that has usvit and a network:

    python3 -m pip list --format=freeze > there.txt
    python benchmarks/gpu.py --requirements there.txt > missing.txt
    python -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \\
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \\
        --dest wheels --requirement missing.txt

Copy ``wheels`` and the repository to the machine, and run there, in the repository:

    python3 -m pip install --no-index --no-deps --target /tmp/site wheels/*.whl
    PYTHONPATH=/tmp/site python3 benchmarks/gpu.py --out DIR --commit HASH

For a machine that has PyTorch, timm, pandas, pyarrow, scikit-learn, OpenCV, matplotlib and pytest, these were 22 wheels
of 34 MB on 2026-11-23. ``--requirements`` without a file prints what this machine itself lacks. A package that is
missing in spite of this makes the measurement "skipped: needs X". If the folder does not survive on that machine, take
``DIR/gpu.json`` away after each call, and put it back before the next one. Nothing is downloaded: networks have random
weights, and images are generated.
"""

import argparse
import signal
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# As a script, Python searches the folder of this file first, whose coverage.py would hide the package of this name.
sys.path[:] = [
    str(REPOSITORY),
    *(entry for entry in sys.path if Path(entry or ".").resolve() != REPOSITORY / "benchmarks"),
]

from benchmarks.gpu_pieces import page, plan, requirements, runner  # noqa: E402
from benchmarks.gpu_pieces.results import Results, UnusableResults  # noqa: E402

PAGE = REPOSITORY / "docs" / "benchmarks-gpu.md"
EXIT_USER, EXIT_PARTLY = 2, 3


def main() -> int:
    args = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the measurement's process, too
    try:
        return run(args)
    except (UnusableResults, plan.UnknownPiece, requirements.UnusableList) as error:
        print(f"Error: {error}", file=sys.stderr)
        return EXIT_USER


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of gpu.json, which is created or continued")
    parser.add_argument("--minutes", type=float, default=8.5, help="time of this call (default: 8.5)")
    parser.add_argument(
        "--pieces", help=f"pieces or single measurements, with commas (default: {','.join(plan.PIECES)})"
    )
    parser.add_argument("--again", action="store_true", help="measure the chosen pieces again, although they are there")
    parser.add_argument("--tiny", action="store_true", help="tiny settings on the CPU, whose figures mean nothing")
    parser.add_argument(
        "--scratch", type=Path, help="folder for data and runs, which is kept (default: a temporary one)"
    )
    parser.add_argument("--commit", help="commit of this copy of usvit, if git cannot tell")
    parser.add_argument("--list", action="store_true", help="show the measurements and stop")
    parser.add_argument("--page", nargs="?", const=PAGE, type=Path, metavar="FILE", help="write the page and stop")
    parser.add_argument("--requirements", nargs="?", const="", metavar="FILE", help="show missing packages and stop")
    args = parser.parse_args()
    if args.out is None and not args.list and args.requirements is None:
        parser.error("--out DIR is missing: the folder of the results")
    return args


def run(args: argparse.Namespace) -> int:
    if args.requirements is not None:
        print("\n".join(requirements.missing(Path(args.requirements) if args.requirements else None)))
        return 0
    measurements = plan.choose(plan.tiny() if args.tiny else plan.full(), args.pieces)
    if args.list:
        print("\n".join(f"{one.key:28} {one.estimate:4.0f} s  {one.says}" for one in measurements))
        return 0
    if args.page is not None:
        return write_page(args.out, args.page)
    results = Results.open(args.out, tiny=args.tiny)
    return runner.measure_all(
        measurements,
        results,
        minutes=args.minutes,
        again=args.again,
        scratch=args.scratch,
        commit=args.commit,
        repository=REPOSITORY,
    )


def write_page(out: Path, target: Path) -> int:
    """Write the page; for the page of the documentation also keep the results beside it."""
    results = Results.read(out)
    if target == PAGE:
        if results.content["tiny"]:
            raise UnusableResults(
                f"{results.path} holds figures of --tiny, which mean nothing. Name another file: --page FILE."
            )
        results.write_to(PAGE.with_suffix(".json"))
    target.write_text(page.page(results.content), encoding="utf-8")
    print(f"written: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
