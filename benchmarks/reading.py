"""Scripted readers read real cases in Chromium, are closed in mid-case, and the server is killed; what was it like?

    python -m benchmarks.reading RUN --data-root DIR --out DIR [--cases 200] [--readers 3] [--look 0]
    python -m benchmarks.reading --many 10000 --loops 20 --out DIR

The first form makes a sequential reader study of the test images of a run. Each reader reads by keyboard in a window of
Chromium of its own; half of them close it in mid-case and come back. The server is ended twice with SIGKILL. It then
compares the exported table with the script of the readers, and prints the time until the next case is on the screen,
after each case was looked at for so many seconds (--look; 0: as fast as the browser goes).
The second form writes images of noise and DICOM loops of 100 frames, and prints the time from the start of the command
to the first image, and the memory of the server while one reader goes through cases and loops.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

CHROMIUM = shutil.which("chromium")
_NEXT = """() => new Promise((done) => {
  const before = document.getElementById("count").textContent, start = performance.now();
  document.getElementById("submit").click();
  const look = () => {
    const canvas = document.querySelector("canvas"), count = document.getElementById("count").textContent;
    const wait = document.getElementById("reading").hidden ? 0 : null;
    if (wait === 0) return done(-1);
    const shown = canvas && canvas.getContext("2d").getImageData(0.4 * canvas.width, 0.2 * canvas.height, 99, 9).data;
    const drawn = count !== before && shown && shown.some((value, n) => n % 4 < 3 && value > 30);
    if (drawn) return done(performance.now() - start);
    requestAnimationFrame(look);
  };
  look();
})"""
"""Submits the case, and returns the milliseconds until another case is drawn; -1 after the last one."""


class Command:
    """``usvit review`` in a process of its own."""

    def __init__(self, study: Path, port: int):
        self._command = [sys.executable, "-m", "usvit", "review", str(study), "--port", str(port), "--no-browser"]
        self.start()

    def start(self) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http\S+", line):
                self.link = found[0]
                return
        raise RuntimeError("the command ended")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def memory_mb(self) -> float:
        """Return the resident memory of the server and its processes."""
        pids = [
            self.process.pid,
            *map(
                int,
                subprocess.run(
                    ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
                ).stdout.split(),
            ),
        ]
        pages = 0
        for pid in pids:
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def rating(name: str, position: int) -> int:
    """Return the script of a reader."""
    return (37 * position + 11 * sum(map(ord, name))) % 101


class Browsing(threading.Thread):
    """A reader in a window of Chromium; ``leaves``: number of the reading in which the window is closed once."""

    def __init__(self, link: str, name: str, leaves: int | None, look: float = 0):
        super().__init__(daemon=True)
        self.link, self.reader, self.leaves, self.look = link, name, leaves, look
        self.waited: list[float] = []
        self.error: Exception | None = None

    def run(self) -> None:
        from playwright.sync_api import sync_playwright

        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
                while not self._read(browser):
                    pass
                browser.close()
        except Exception as error:
            self.error = error

    def _read(self, browser: Any) -> bool:
        """Read until all is read (True) or the window is closed in mid-case."""
        page = self._opened(browser)
        while page.locator("#reading").is_visible():
            number = int(page.locator("#count").inner_text().split()[1])
            page.locator("#questions").press("4")
            page.keyboard.press("a")
            if self.leaves == number:
                self.leaves = None
                page.wait_for_timeout(300)  # the answer is on its way, and the case is not finished
                page.context.close()
                return False
            page.locator("input[type=number]").fill(str(rating(self.reader, number)))
            page.locator("input[type=number]").press("Tab")
            page.wait_for_timeout(1000 * self.look)
            waited = page.evaluate(_NEXT)
            if waited >= 0:
                self.waited.append(waited)
        done = "Thank you" in page.locator("#message").inner_text()
        page.context.close()
        return done

    def _opened(self, browser: Any) -> Any:
        while True:
            page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            page.set_default_timeout(120_000)
            try:
                page.goto(self.link)
                page.wait_for_selector("main > section:not([hidden])")
                return page
            except Exception:
                page.context.close()
                time.sleep(0.2)


def kill_and_read(options: argparse.Namespace) -> None:
    import pandas as pd
    import yaml

    from tests.reviewing.studies import RemoteReader
    from usvit.reviewing import export_review, review_status

    names = [f"R{k}" for k in range(1, options.readers + 1)]
    options.out.mkdir(parents=True)
    study = options.out / "study.yaml"
    source = {"run": str(options.run.absolute()), "cases": options.cases}
    source |= {} if options.data_root is None else {"data_root": str(options.data_root.absolute())}
    study.write_text(yaml.safe_dump({"design": "sequential", "readers": [*names, "idle"], "source": source}))
    command = Command(study, options.port)
    links = {one["name"]: one["link"] for one in RemoteReader(command.link).state()["readers"]}
    total = 2 * options.cases * len(names)
    readers = [
        Browsing(links[name], name, 7 + 2 * k if k % 2 == 0 else None, options.look) for k, name in enumerate(names)
    ]
    start = time.monotonic()
    for one in readers:
        one.start()
    for share in (0.2, 0.5):
        while sum(one.done for one in review_status(study).readers) < share * total:
            time.sleep(0.2)
        command.kill()
        command.start()
    for one in readers:
        one.join()
        if one.error is not None:
            raise one.error
    seconds = time.monotonic() - start
    print(f"memory of the server: {command.memory_mb():.0f} MB")
    command.process.terminate()
    table = pd.read_csv(export_review(study).folder / "readings.csv")
    table = table[table.reader != "idle"]  # with one reader alone, there is no page with links
    script = [rating(name, at) for name, at in zip(table.reader.tolist(), table.position.tolist(), strict=True)]
    wrong = int((table.malignancy != script).sum())
    print(f"{len(table)} readings of {total} in {seconds:.0f} s; {table.answered_at.isna().sum()} open, {wrong} wrong")
    waited = np.concatenate([one.waited for one in readers])
    shares = ", ".join(f"{q} % {np.percentile(waited, q):.0f}" for q in (50, 90, 95, 99))
    print(f"next case on the screen, ms: {shares}; {np.mean(waited < 100):.1%} below 100")


def many(options: argparse.Namespace) -> None:
    from PIL import Image

    from tests.data.conftest import write_dicom
    from tests.reviewing.studies import RemoteReader

    images = options.out / "images"
    images.mkdir(parents=True)
    rng = np.random.default_rng(0)
    texture = rng.integers(0, 255, (600, 800), dtype=np.uint8)
    for k in range(options.many):
        part = texture[k % 80 : k % 80 + 480, (k * 7) % 150 : (k * 7) % 150 + 640]
        Image.fromarray(part).save(images / f"{k:05}.png", compress_level=1)
    for k in range(options.loops):
        frames = np.stack([np.roll(texture[:480, :640], 5 * n + k, axis=1) for n in range(100)])
        write_dicom(images / f"loop{k:02}.dcm", frames, FrameTime="40")
    study = options.out / "study.yaml"
    study.write_text("source: {images: [images]}\nreaders: [A]\n")
    for what in ("begin", "go on"):
        command = Command(study, options.port)
        listening = time.monotonic() - command.began
        reader = RemoteReader(command.link)
        first = reader.state()["task"]["images"][0]["id"]
        reader.get(f"/image/{first}/0.png")
        print(f"{what}: link after {listening:.1f} s, first image after {time.monotonic() - command.began:.1f} s")
        if what == "begin":
            command.process.terminate()
            command.process.wait()
    waits, asked, memory = [], [], []
    for k in range(400):
        start = time.monotonic()
        state = reader.state()
        asked.append(time.monotonic() - start)
        task = state["task"]
        for one in task["images"]:
            for frame in range(one["frames"]):
                start = time.monotonic()
                reader.get(f"/image/{one['id']}/{frame}.png")
                waits.append(time.monotonic() - start)
        said = {"task": task["id"], "active_seconds": 0}
        reader.post("answer", question="birads", value="3", **said)
        reader.post("answer", question="malignancy", value=1, **said)
        reader.post("submit", **said)
        if k % 100 == 99:
            memory.append(f"{command.memory_mb():.0f}")
    print(f"state: median {1000 * np.median(asked):.0f} ms; picture: median {1000 * np.median(waits):.0f} ms, 95 %")
    print(f"{1000 * np.percentile(waits, 95):.0f} ms; memory after 100, 200, 300, 400 cases, MB: {', '.join(memory)}")
    command.process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--look", type=float, default=0)
    parser.add_argument("--many", type=int)
    parser.add_argument("--loops", type=int, default=20)
    parser.add_argument("--port", type=int, default=8799)
    options = parser.parse_args()
    many(options) if options.many else kill_and_read(options)


if __name__ == "__main__":
    main()
