"""Files of the user's cache folder that are cut, exchanged, forged, or replaced before the command or while it runs.

The command must write what it writes with an empty cache.
"""

import os
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fuzzing.child import Ended, run_apart, run_command
from benchmarks.fuzzing.damage import whole_text
from benchmarks.fuzzing.harness import Options, Rng
from benchmarks.fuzzing.special_files import SPECIAL_FILES, put_special
from benchmarks.fuzzing.world import World, make_world


@dataclass(frozen=True)
class Cache:
    """A command that uses a cache: where it is below the cache folder, and the file of its result."""

    files: str
    command: str
    """``World.arguments`` with the shards as its file."""
    result: str


CACHES = {
    "examined images": Cache("examined.sqlite", "data audit DATA --out {out}", "keep.csv"),
    "pixels": Cache("pixels/*", "CV DATA --out {out}", "predictions.csv"),
    "indexes of shards": Cache(
        "shards/*.npz",
        "pretrain --recipe mae --model vit_ti16 --source shards --path {file} --device cpu --set model.image_size=32 "
        "--set train.batch_size=4 --set train.steps=1 --set mae.decoder_depth=1 --out {out}",
        "fold-0/model.safetensors",
    ),
}
SHARDS = "a-000{000..001}.tar"


def damage_cache(file: Path, rng: Rng) -> str:
    """Damage a file of a cache, or put something else in its place."""
    others = [one for one in file.parent.iterdir() if one.is_file() and one != file]
    kind = rng.integers(4)
    if kind == 0:
        special = list(SPECIAL_FILES)[rng.integers(len(SPECIAL_FILES))]
        put_special(file, special)
        return special
    if kind == 1 and others:
        shutil.copyfile(others[rng.integers(len(others))], file)
        return "the content of another file"
    if kind == 2:
        data = bytearray(file.read_bytes())
        for at in rng.integers(len(data), size=int(rng.choice([1, 20, 500]))):
            data[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(data)
        return "flipped bits"
    return whole_text(file, rng)


def _exchanging(file: Path, healthy: bytes, seed: int) -> Callable[[], None]:
    """Return a function that damages and mends a file until the process ends."""
    rng = np.random.default_rng(seed)

    def go() -> None:
        while True:
            for content in (healthy, healthy[: len(healthy) // 2], rng.bytes(5000), healthy[::-1]):
                file.with_name("new").write_bytes(content)
                os.replace(file.with_name("new"), file)
                time.sleep(float(rng.random()) * 0.02)

    return go


def warm_cache(world: World, name: str) -> bytes:
    """Fill a cache by its command, and return what the command writes."""
    cache = CACHES[name]
    os.environ["USVIT_CACHE"] = str(world.root / "warm" / name)
    ended = run_command(
        world.arguments(cache.command, world.root / SHARDS, world.root / "first" / name), seconds=600, memory_gb=20
    )
    found = list((world.root / "warm" / name).glob(cache.files))
    if ended.status != 0 or not found:
        raise SystemExit(f"{name}: {ended.status}, {len(found)} files\n{ended.text}")
    return (world.root / "first" / name / cache.result).read_bytes()


def run_beside_cache(world: World, name: str, expected: bytes, options: Options, rng: Rng) -> Ended:
    """Run a command beside a damaged copy of the warm cache; its result must be that without a cache."""
    from usvit.cli import main

    cache, place = CACHES[name], world.case
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(world.root / "warm" / name, place / "cache")
    files = sorted(path for path in (place / "cache").glob(cache.files) if path.is_file())
    file = files[rng.integers(len(files))]
    healthy, moving = file.read_bytes(), rng.random() < 0.2
    what = "exchanged all the time" if moving else damage_cache(file, rng)
    go = _exchanging(file, healthy, int(rng.integers(10**6)))
    os.environ["USVIT_CACHE"] = str(place / "cache")
    arguments = world.arguments(cache.command, world.root / SHARDS)

    def work() -> None:
        if moving:
            threading.Thread(target=go, daemon=True).start()
        sys.argv = ["usvit", *arguments]
        main()

    what = f"{file.name[:20]} {what}"
    ended = run_apart(work, folder=place, outside=(world.outside,), kind=name, name=what, **options.limits)
    if ended.outcome == "passed" and (place / "out" / cache.result).read_bytes() != expected:
        ended.changed.append(f"{cache.result} is another one")
    return ended


def pack_shards(world: World) -> None:
    images = sorted((world.root / "new").rglob("*.png"))
    for number in range(2):
        with tarfile.open(world.root / f"a-00000{number}.tar", "w") as tar:
            for image in images[number::2]:
                tar.add(image, image.name)


def caches(root: Path, options: Options) -> Iterator[Ended]:
    world = make_world(root)
    pack_shards(world)
    names = options.chosen(CACHES)
    expected = {name: warm_cache(world, name) for name in names}
    for number in options.numbers:
        name = names[number % len(names)]
        yield run_beside_cache(world, name, expected[name], options, options.rng(number))
