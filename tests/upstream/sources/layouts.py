"""Tiny data sets on disk in the layouts of the real ones."""

import hashlib
import io
import json
import pickle
from pathlib import Path

import numpy as np
from PIL import Image


def pixels(seed: int, size: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)


def encoded(seed: int, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels(seed)).save(buffer, kind)
    return buffer.getvalue()


def put(path: Path, seed: int = 0, kind: str = "PNG") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(seed, kind))
    return path


def class_tree(root: Path, counts: dict[str, int]) -> Path:
    for number, (label, count) in enumerate(counts.items()):
        (root / label).mkdir(parents=True, exist_ok=True)
        for at in range(count):
            put(root / label / f"{at}.png", 100 * number + at)
    return root


def write_cifar(root: Path, name: str, monkeypatch, per_file: int = 12) -> dict[str, dict]:
    """CIFAR's real format with other pixels; torchvision's checksums are exchanged for theirs."""
    from torchvision.datasets import CIFAR10, CIFAR100

    release = CIFAR10 if name == "cifar10" else CIFAR100
    folder = root / release.base_folder
    folder.mkdir(parents=True)
    classes = 10 if name == "cifar10" else 100
    written, lists = {}, {"train_list": [], "test_list": []}
    for kind, files in lists.items():
        for number, (file, _) in enumerate(getattr(release, kind)):
            generator = np.random.default_rng(number + 10 * len(kind))
            count = max(per_file, classes)
            labels = (np.arange(count) % classes).tolist()
            batch = {"data": generator.integers(0, 256, (count, 3072), dtype=np.uint8), "batch_label": file}
            if name == "cifar10":
                batch["labels"] = labels
            else:
                batch |= {"fine_labels": labels, "coarse_labels": [(7 * label) % 20 for label in labels]}
            data = pickle.dumps(batch)
            (folder / file).write_bytes(data)
            files.append([file, hashlib.md5(data).hexdigest()])
            written[file] = batch
    names = [f"thing{number}" for number in range(classes)]
    meta = {release.meta["key"]: names, "coarse_label_names": [f"group{number}" for number in range(20)]}
    data = pickle.dumps(meta)
    (folder / release.meta["filename"]).write_bytes(data)
    for kind, files in lists.items():
        monkeypatch.setattr(release, kind, files)
    monkeypatch.setattr(release, "meta", {**release.meta, "md5": hashlib.md5(data).hexdigest()})
    return written


def write_flowers(root: Path, monkeypatch) -> Path:
    from scipy.io import savemat
    from torchvision.datasets import Flowers102

    folder = root / "flowers-102"
    labels = [102, 1, 50, 2, 102, 7]
    for number in range(1, 7):
        put(folder / "jpg" / f"image_{number:05d}.jpg", number, "JPEG")
    savemat(folder / "imagelabels.mat", {"labels": np.array([labels], dtype=np.uint8)})
    savemat(
        folder / "setid.mat", {"trnid": np.array([[6, 1]]), "valid": np.array([[3, 2]]), "tstid": np.array([[5, 4]])}
    )
    checked = {"image": ("102flowers.tgz", "")}
    for key, file in (("label", "imagelabels.mat"), ("setid", "setid.mat")):
        checked[key] = (file, hashlib.md5((folder / file).read_bytes()).hexdigest())
    monkeypatch.setattr(Flowers102, "_file_dict", checked)
    return folder


def write_pets(root: Path) -> Path:
    folder = root / "oxford-iiit-pet"
    (folder / "annotations").mkdir(parents=True)
    rows = {
        "trainval": ["Abyssinian_100 1 1 1", "yorkshire_terrier_7 3 2 2", "Bengal_1 2 1 2"],
        "test": ["Bengal_2 2 1 2", "Abyssinian_5 1 1 1", "yorkshire_terrier_9 3 2 2"],
    }
    for part, lines in rows.items():
        (folder / "annotations" / f"{part}.txt").write_text("\n".join(lines) + "\n")
        for at, line in enumerate(lines):
            put(folder / "images" / f"{line.split()[0]}.jpg", at + 10 * len(part), "JPEG")
    return folder


def write_cars(root: Path) -> Path:
    from scipy.io import savemat

    folder = root / "stanford_cars"
    kind = [("bbox_x1", "O"), ("fname", "O"), ("class", "O")]

    def annotations(rows):
        table = np.empty((1, len(rows)), dtype=kind)
        for at, (name, label) in enumerate(rows):
            table[0, at] = (1, name, label)
        return {"annotations": table}

    (folder / "devkit").mkdir(parents=True)
    names = np.empty((1, 3), dtype=object)
    names[0] = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Acura TL Sedan 2012"]
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names})
    train, test = [("00001.jpg", 3), ("00002.jpg", 1)], [("00001.jpg", 2), ("00002.jpg", 3), ("00003.jpg", 1)]
    savemat(folder / "devkit" / "cars_train_annos.mat", annotations(train))
    savemat(folder / "cars_test_annos_withlabels.mat", annotations(test))
    for part, rows in (("train", train), ("test", test)):
        for at, (name, _) in enumerate(rows):
            put(folder / f"cars_{part}" / name, at + 10 * len(part), "JPEG")
    return folder


def write_food(root: Path) -> Path:
    folder = root / "food-101"
    (folder / "meta").mkdir(parents=True)
    listed = {
        "train": {"waffles": ["waffles/9", "waffles/10"], "apple_pie": ["apple_pie/1"]},
        "test": {"waffles": ["waffles/11"], "apple_pie": ["apple_pie/2", "apple_pie/3"]},
    }
    for part, content in listed.items():
        (folder / "meta" / f"{part}.json").write_text(json.dumps(content))
        for at, file in enumerate(file for files in content.values() for file in files):
            put(folder / "images" / f"{file}.jpg", at + 10 * len(part), "JPEG")
    return folder


def write_inat(root: Path, year: int = 2018) -> Path:
    taxonomy = [
        {"id": 0, "name": "Acer rubrum", "kingdom": "Plantae", "order": "Sapindales", "genus": "Acer"},
        {"id": 1, "name": "Corvus corax", "kingdom": "Animalia", "order": "Passeriformes", "genus": "Corvus"},
        {"id": 2, "name": "Corvus corone", "kingdom": "Animalia", "order": "Passeriformes", "genus": "Corvus"},
    ]
    group = ["Plantae", "Aves", "Aves"]
    (root).mkdir(parents=True, exist_ok=True)
    (root / "categories.json").write_text(json.dumps(taxonomy))
    for part, start, labels in (("train", 0, [2, 0, 1, 2]), ("val", 100, [1, 0])):
        images = []
        for at, label in enumerate(labels):
            file = f"train_val{year}/{group[label]}/{label}/{chr(ord('d') - at)}{start}.jpg"
            put(root / file, start + at, "JPEG")
            images.append({"id": start + at, "file_name": file})
        annotations = [
            {"id": i["id"], "image_id": i["id"], "category_id": c} for i, c in zip(images, labels, strict=True)
        ]
        hidden = [{"id": at, "name": str(at), "supercategory": group[at]} for at in range(3)]
        content = {"images": images, "annotations": annotations[::-1], "categories": hidden}
        (root / f"{part}{year}.json").write_text(json.dumps(content))
    return root


def write_imagenet(root: Path, wnids, *, flat: str | None = None) -> Path:
    """Three training images and four of validation among the 1,000 classes."""
    for wnid in wnids:
        (root / "train" / wnid).mkdir(parents=True)
        if flat is None:
            (root / "val" / wnid).mkdir(parents=True)
    for at, label in enumerate((0, 999, 3)):
        put(root / "train" / wnids[label] / f"{wnids[label]}_{at}.JPEG", at, "JPEG")
    truth = {1: 65, 2: 970, 3: 230, 4: 809}
    for number, label in truth.items():
        file = f"ILSVRC2012_val_{number:08d}.JPEG"
        put(root / "val" / (file if flat else f"{wnids[label]}/{file}"), 20 + number, "JPEG")
    if flat == "kaggle":
        rows = [f"ILSVRC2012_val_{number:08d},{wnids[label]} 1 2 3 4" for number, label in truth.items()]
        (root / "LOC_val_solution.csv").write_text("\n".join(["ImageId,PredictionString", *rows]) + "\n")
    if flat == "devkit":
        write_devkit(root / "ILSVRC2012_devkit_t12" / "data", wnids, truth)
    return root


def write_devkit(folder: Path, wnids, truth: dict[int, int]) -> None:
    """The devkit counts classes in an order of its own, and has inner nodes of the tree too."""
    from scipy.io import savemat

    folder.mkdir(parents=True)
    order = np.random.default_rng(0).permutation(1000)
    kind = [(name, "O") for name in ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")]
    table = np.empty((1001, 1), dtype=kind)
    for at, label in enumerate(order):
        table[at, 0] = (at + 1, wnids[label], "words", "gloss", 0)
    table[1000, 0] = (1001, "n00001740", "entity", "all", 5)
    savemat(folder / "meta.mat", {"synsets": table})
    ids = {int(label): at + 1 for at, label in enumerate(order)}
    lines = [str(ids[truth[number]]) for number in sorted(truth)]
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text("\n".join(lines) + "\n")


def write_kitti(root: Path, drives: int = 20, each: int = 2) -> list[str]:
    """Scenes of drives; the mapping lists raw frames in one order and names the images' in another."""
    scenes = drives * each
    mapping = [f"2011_09_26 2011_09_26_drive_{line % drives:04d}_sync {line:010d}" for line in range(scenes)]
    order = np.random.default_rng(1).permutation(scenes) + 1
    (root / "mapping").mkdir(parents=True)
    (root / "mapping" / "train_mapping.txt").write_text("\n".join(mapping) + "\n")
    (root / "mapping" / "train_rand.txt").write_text(",".join(map(str, order)) + "\n")
    (root / "training" / "label_2").mkdir(parents=True)
    for number in range(scenes):
        put(root / "training" / "image_2" / f"{number:06d}.png", number)
        tail = "0 0 10 10 20 20 1.5 1.6 3.5 0.1 1.7"
        lines = [f"Car 0.00 {tail} {5 + number}.25 0.01", f"Pedestrian 0.00 {tail} 1.00 0.01"]
        (root / "training" / "label_2" / f"{number:06d}.txt").write_text("\n".join(lines) + "\n")
    return [mapping[line - 1].split()[1] for line in order]
