"""Measure which images the out-of-distribution score recognises: shares of images that are flagged as unusual.

    python benchmarks/novelty.py --out runs/novelty --busi DATA/Dataset_BUSI_with_GT --dicom DATA/us_dicom

A small network is trained from scratch on BUSI and on the phantom, with five folds each, and then scores other images.
Images of the data set itself (original, upside down, inverted, with Doppler) are scored by the one network that has not
seen them; all others by the median of the five networks, as in an ensemble. Each network's limit flags 5 % of its inner
validation images.

Finished runs are kept and not repeated. The photographs are three pictures in public packages, and their quarters.
"""

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.cbook import get_sample_data
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from usvit.config import build_config, load_recipe
from usvit.data.audit.flags import has_doppler
from usvit.data.io.bad_image import BadImage
from usvit.data.io.decoding import read_image
from usvit.data.io.types import UInt8
from usvit.data.loading.pixel_store import PixelStore
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.experiments.cross_validation import CrossValidation
from usvit.experiments.cross_validation_setup import prepare
from usvit.metrics.intervals import wilson
from usvit.models import ood
from usvit.models.features import logits_and_features
from usvit.models.image_statistics import picture_statistics
from usvit.models.ood import Observed
from usvit.models.trained_model import load_trained
from usvit.progress import PlainProgress

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Trained:
    """Run on one data set, and its images."""

    name: str
    run: Path
    test: list[NDArray[np.int64]]
    """For each fold, the rows of its test images."""
    pixels: Pixels
    """(N, S, S, 3)."""
    doppler: NDArray[np.bool_]
    preprocessing: Preprocessing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--busi", type=Path)
    parser.add_argument("--dicom", type=Path, help="folder of ultrasound files of other organs")
    parser.add_argument("--model", default="timm:test_resnet")
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--image-size", type=int, default=128)
    given = parser.parse_args()
    phantom = given.out / "phantom"
    if not phantom.is_dir():
        write_phantom(PhantomSpec(n=240, seed=20, size=256), phantom)
    runs = [train("phantom", phantom, given)]
    if given.busi:
        runs.insert(0, train("busi", given.busi, given))
    for one in runs:
        report(one, [other for other in runs if other is not one], given.dicom)
    print(f"\n{time.process_time():.0f} s of processor time in all")


def train(name: str, root: Path, given: argparse.Namespace) -> Trained:
    model = {"name": given.model, "weights": "scratch", "image_size": given.image_size}
    settings = {"data": {"dataset": name}, "model": model, "train": {"epochs": given.epochs}}
    config = build_config(load_recipe("demo"), settings, {"device": "cpu", "precision": "fp32"})
    run, progress = given.out / f"{name}-{given.model.replace(':', '-')}-{given.epochs:g}", PlainProgress()
    begun = time.process_time()
    outcome = CrossValidation("cv", config, roots={"": root}, out=run, command="novelty.py", progress=progress).run()
    area = outcome.result.pooled.auc["malignant_vs_rest"].value
    print(f"{name}: AUC {area:.3f}, {time.process_time() - begun:.0f} s of processor time", flush=True)
    job = prepare("cv", config, {"": root}, progress)
    store = PixelStore.build(
        job.manifest, job.preprocessing, memory_gb=4, folder=run, progress=progress, with_lesions=False
    )
    rows = job.manifest.usable
    test = []
    for fold in range(job.n_folds):
        of_fold = job.folds[job.folds.fold == fold].set_index(["dataset", "image_id"]).part
        part = [of_fold[key] for key in zip(rows.dataset, rows.image_id, strict=True)]
        test.append(np.flatnonzero(np.array(part) == "test"))
    return Trained(
        name,
        run,
        test,
        store.pixels,
        np.array([has_doppler(read_image(job.manifest.image_path(row))) for _, row in rows.iterrows()]),
        job.preprocessing,
    )


def report(one: Trained, others: list[Trained], dicom: Path | None) -> None:
    judges = [Judge(one, fold) for fold in range(len(one.test))]
    print(f"\n| {one.name} network, shown | images | flagged [95 %] |\n|---|---|---|")
    for name, change in OF_ITS_OWN.items():
        line(name, np.concatenate([judge.scores(change(one.pixels[judge.test])) for judge in judges]))
    doppler = [judge.scores(one.pixels[judge.test[one.doppler[judge.test]]]) for judge in judges]
    if sum(map(len, doppler)):
        line("its images with Doppler", np.concatenate(doppler))
    for name, pixels in foreign(one, others, dicom).items():
        line(name, np.median([judge.scores(pixels) for judge in judges], axis=0))


OF_ITS_OWN = {
    "its test images": lambda pixels: pixels,
    "upside down": lambda pixels: pixels[:, ::-1].copy(),
    "turned by 90 degrees": lambda pixels: np.rot90(pixels, axes=(1, 2)).copy(),
    "mirrored (no harm)": lambda pixels: pixels[:, :, ::-1].copy(),
    "inverted": lambda pixels: 255 - pixels,
    "half as bright": lambda pixels: pixels // 2,
    "tinted (blue channel halved)": lambda pixels: np.stack(
        [pixels[..., 0], pixels[..., 1], pixels[..., 2] // 2], axis=-1
    ),
}


def line(name: str, scores: NDArray[np.float64]) -> None:
    hits, n = int((scores > 1).sum()), len(scores)
    low, high = wilson(hits, n) or (0.0, 1.0)
    print(f"| {name} | {n} | {hits / n:.0%} [{low:.0%}, {high:.0%}] |", flush=True)


def foreign(one: Trained, others: list[Trained], dicom: Path | None) -> dict[str, Pixels]:
    """Return pictures that no network was trained on, at the input size of this network."""
    side, rng = one.preprocessing.image_size, np.random.default_rng(0)
    noise = rng.integers(0, 256, (20, side, side, 3), dtype=np.uint8)
    grey = np.repeat(rng.integers(0, 256, (20, side, side, 1), dtype=np.uint8), 3, axis=3)
    blank = np.stack([np.full((side, side, 3), level, np.uint8) for level in (0, 32, 64, 128, 192, 255)])
    pictures = {
        **{f"images of the {other.name}": other.pixels for other in others},
        "photographs, and their quarters": resized(photographs(), one.preprocessing),
        "the same in grey": resized((as_grey(photo) for photo in photographs()), one.preprocessing),
        "blank frames": blank,
        "colour noise": noise,
        "grey noise": grey,
    }
    if dicom:
        pictures["ultrasound of other organs"] = resized(frames_of(dicom), one.preprocessing)
    return pictures


def photographs() -> list[UInt8]:
    whole = [np.asarray(image) for image in load_sample_images().images]
    whole.append(read_image(Path(str(get_sample_data("grace_hopper.jpg", asfileobj=False)))))
    quarters = []
    for image in whole:
        middle, centre = image.shape[0] // 2, image.shape[1] // 2
        quarters += [image[:middle, :centre], image[:middle, centre:], image[middle:, :centre], image[middle:, centre:]]
    return [*whole, *quarters]


def as_grey(image: UInt8) -> UInt8:
    return np.repeat(image.mean(axis=2, keepdims=True).astype(np.uint8), 3, axis=2)


def frames_of(folder: Path) -> Iterable[UInt8]:
    for path in sorted(folder.glob("*.dcm")):
        for number in (0, 10, 20):
            try:
                yield read_image(path, number)
            except BadImage:  # it has no such frame
                break


def resized(images: Iterable[UInt8], preprocessing: Preprocessing) -> Pixels:
    return np.stack([preprocessing.resized(np.ascontiguousarray(image)) for image in images])


class Judge:
    """The network of one fold and its detector."""

    def __init__(self, one: Trained, fold: int):
        folder = one.run / f"fold-{fold}"
        self.trained = load_trained(folder)
        detector = ood.read_ood_detector(folder, self.trained.metadata)
        assert detector is not None
        self.detector, self.test = detector, one.test[fold]

    def scores(self, pixels: Pixels) -> NDArray[np.float64]:
        """Return the (n,) scores; an image above 1 is flagged."""
        found = []
        with torch.inference_mode():
            for start in range(0, len(pixels), 64):
                batch = torch.from_numpy(np.ascontiguousarray(pixels[start : start + 64]))
                _, features = logits_and_features(self.trained.model, self.trained.preprocessing.normalised(batch))
                assert features is not None
                found.append(self.detector.of(Observed(features.numpy(), picture_statistics(batch).numpy())))
        return np.concatenate(found) if found else np.empty(0)


if __name__ == "__main__":
    main()
