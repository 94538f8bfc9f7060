"""Make the pages of the gallery: what usvit writes about generated images, by the commands that a user calls.

``python site/gallery.py FOLDER`` writes them to a folder; ``docs/gallery.md`` shows them.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = (
    "cv --out first --set train.steps=60",
    "cv --out second --set train.steps=60 --model timm:test_vit3 --recipe demo",
    "compare first second --out compared",
    "data phantom --out images --n 60 --seed 7",
    "score --model first --input images/*/*[0-9].png --out scored --thumbnails",
    "data audit --dataset phantom --out audited",
)
PAGES = {
    "report": "first/report.html",
    "compare": "compared/compare.html",
    "score": "scored/scores.html",
    "audit": "audited/audit.html",
}
"""Name of a page in the gallery -> the page that a command writes."""


def make_gallery(folder: Path) -> None:
    """Run the commands in a folder that is removed at the end, and keep their pages."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as desk:
        for command in COMMANDS:
            print(f"usvit {command}", flush=True)
            subprocess.run([sys.executable, "-m", "usvit", "--quiet", *command.split()], cwd=desk, check=True)
        for name, page in PAGES.items():
            shutil.copyfile(Path(desk) / page, folder / f"{name}.html")


if __name__ == "__main__":
    make_gallery(Path(sys.argv[1]))
