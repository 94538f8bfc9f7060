"""Measure which images the out-of-distribution score recognises: shares of images that are flagged as unusual.

    python benchmarks/novelty.py --out runs/novelty --busi DATA/Dataset_BUSI_with_GT --dicom DATA/us_dicom

A small network is trained from scratch on BUSI and on the phantom, with five folds each, and then scores other images.
Images of the data set itself (original, upside down, inverted, with Doppler) are scored by the one network that has not
seen them; all others by the median of the five networks, as in an ensemble. All columns except the first are
alternatives to usvit's method, each with its own conformal limit for 5 % on the inner validation images:

- novelty: usvit's method (both views together);
- picture: only the simple statistics of the picture;
- maha++: only the other view of usvit's method, the Mahalanobis distance of L2-normalised features;
- maha: Mahalanobis distance of unnormalised features (Lee et al. 2018);
- knn: cosine distance to the 10th nearest training image (Sun et al. 2022);
- energy: -log sum exp(logits) (Liu et al. 2020, NeurIPS).

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
from scipy.special import logsumexp
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
from usvit.models.ood import Observed, conformal_quantile
from usvit.models.trained_model import load_trained
from usvit.progress import PlainProgress

METHODS = ("novelty", "picture", "maha++", "maha", "knn", "energy")
NEIGHBOURS = 10
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Trained:
    """Run on one data set, and its images."""

    name: str
    run: Path
    folds: list[dict[str, NDArray[np.int64]]]
    """For each fold, split -> rows."""
    codes: NDArray[np.int64]
    groups: NDArray[np.object_]
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
    folds = []
    for fold in range(job.n_folds):
        of_fold = job.folds[job.folds.fold == fold].set_index(["dataset", "image_id"]).part
        part = np.array([of_fold[key] for key in zip(rows.dataset, rows.image_id, strict=True)])
        folds.append({one: np.flatnonzero(part == one) for one in ("train", "val", "test")})
    return Trained(
        name,
        run,
        folds,
        np.array([job.classes.index(label) for label in rows.label]),
        rows.group_id.to_numpy(object),
        store.pixels,
        np.array([has_doppler(read_image(job.manifest.image_path(row))) for _, row in rows.iterrows()]),
        job.preprocessing,
    )


def report(one: Trained, others: list[Trained], dicom: Path | None) -> None:
    judges = [Judge(one, fold) for fold in range(len(one.folds))]
    print(f"\n| {one.name} network, shown | images | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}")
    for name, change in OF_ITS_OWN.items():
        each = [judge.shares(change(one.pixels[judge.rows["test"]])) for judge in judges if len(judge.rows["test"])]
        line(name, {method: np.concatenate([found[method] > 1 for found in each]) for method in METHODS})
    marked = [(judge, rows) for judge in judges if len(rows := judge.rows["test"][one.doppler[judge.rows["test"]]])]
    if marked:
        each = [judge.shares(one.pixels[rows]) for judge, rows in marked]
        line("its images with Doppler", {m: np.concatenate([found[m] > 1 for found in each]) for m in METHODS})
    for name, pixels in foreign(one, others, dicom).items():
        each = [judge.shares(pixels) for judge in judges]
        line(f"{name}", {method: np.median([found[method] for found in each], axis=0) > 1 for method in METHODS})


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


def line(name: str, flagged: dict[str, NDArray[np.bool_]]) -> None:
    cells = []
    for method in METHODS:
        hits, n = int(flagged[method].sum()), len(flagged[method])
        low, high = wilson(hits, n) or (0.0, 1.0)
        cells.append(f"{hits / n:.0%} [{low:.0%}, {high:.0%}]" if method == "novelty" else f"{hits / n:.0%}")
    print(f"| {name} | {n} | {' | '.join(cells)} |", flush=True)


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
    """Network of one fold; it computes each method's score of a picture, divided by the method's limit."""

    def __init__(self, one: Trained, fold: int):
        folder = one.run / f"fold-{fold}"
        self.trained = load_trained(folder)
        found = ood.read_ood_detector(folder, self.trained.metadata)
        assert found is not None
        self.novelty, self.rows = found, one.folds[fold]
        self.raw = {part: self.look(one.pixels[rows]) for part, rows in self.rows.items() if part != "test"}
        train, code = self.raw["train"][0].features, one.codes[self.rows["train"]]
        assert train is not None
        # The scale of the features affects a Mahalanobis distance only through the shrinkage.
        raw = ood.fit_gaussian(train.astype(np.float64), code, "features")
        assert not isinstance(raw, str)
        self.plain, self.limits = raw, dict.fromkeys(METHODS, 1.0)
        found_val = self.scores(*self.raw["val"])
        group = one.groups[self.rows["val"]]
        code = np.unique(group, return_inverse=True)[1]
        self.limits |= {
            m: conformal_quantile(found_val[m], code, 0.05) for m in METHODS if m not in ("novelty", "energy")
        }
        self.energy = conformal_quantile(found_val["energy"], code, 0.05)

    def look(self, pixels: Pixels) -> tuple[Observed, NDArray[np.float64]]:
        features, statistics, energies = [], [], []
        with torch.inference_mode():
            for start in range(0, len(pixels), 64):
                batch = torch.from_numpy(np.ascontiguousarray(pixels[start : start + 64]))
                logits, feature = logits_and_features(self.trained.model, self.trained.preprocessing.normalised(batch))
                assert feature is not None
                features.append(feature.numpy())
                statistics.append(picture_statistics(batch).numpy())
                energies.append(-logsumexp(logits.numpy().astype(np.float64), axis=1))
        return Observed(np.concatenate(features), np.concatenate(statistics)), np.concatenate(energies)

    def scores(self, seen: Observed, energy: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        assert seen.features is not None
        views = {name: view.distance(seen.view(name)) for name, view in self.novelty.views.items()}  # type: ignore[arg-type]
        known = self.raw["train"][0].view("features")
        own = seen.view("features")
        assert known is not None and own is not None
        nearest = np.sort(1 - own @ known.T, axis=1)[:, NEIGHBOURS - 1]
        return {
            "novelty": self.novelty.of(seen),
            "picture": views["picture"],
            "maha++": views["features"],
            "maha": self.plain.distance(seen.features.astype(np.float64)),
            "knn": nearest,
            "energy": energy,
        }

    def shares(self, pixels: Pixels) -> dict[str, NDArray[np.float64]]:
        """Return method -> (n,) scores; a picture above 1 is unusual."""
        found = self.scores(*self.look(pixels))
        return {
            method: found[method] - self.energy + 1 if method == "energy" else found[method] / self.limits[method]
            for method in METHODS
        }


if __name__ == "__main__":
    main()
