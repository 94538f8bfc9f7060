"""A run is explained on what its networks have not seen."""

import json
import shutil
from pathlib import Path
from typing import get_args

import jsonschema
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from tests.conftest import REPOSITORY
from tests.explaining.conftest import SMALL_SHAPE
from usvit.config.explaining import Method
from usvit.errors import UsvitError
from usvit.explaining import explain
from usvit.explaining.attention import rollout_maps
from usvit.explaining.methods import MAPS
from usvit.files import LOCK, alone_in
from usvit.models.trained_model import load_trained
from usvit.progress import NoProgress

pytestmark = pytest.mark.slow

SCHEMA = json.loads((REPOSITORY / "docs/reference/explain.schema.json").read_text())


@pytest.fixture
def ask(small_phantom):
    """``explain`` on the small phantom."""

    def of(path, **options):
        return explain(Path(path), **{"data_root": {"": small_phantom}, "progress": NoProgress(), **options})

    return of


def read(folder):
    content = json.loads((folder / "explain.json").read_text())
    jsonschema.validate(content, SCHEMA)
    return content


def ids_of_test(run, fold):
    table = pd.read_csv(run / f"fold-{fold}" / "predictions.csv")
    return set(table.image_id)


def test_every_method_writes_what_its_schema_says_and_leaves_the_others(make_run, ask):
    run = make_run()
    methods = [method for method in get_args(Method) if method != "mixing"]  # which only a ResMLP has
    for method in methods:
        explained = ask(run, method=method, **({"images": 3} if method in MAPS else {}))
        assert explained.folder == run / "explain"
    content = read(run / "explain")
    assert set(content["methods"]) == set(methods)
    named = {image["file"] for method in MAPS for image in content["methods"][method]["images"]}
    named |= {content["methods"][method]["file"] for method in ("distance", "residuals", "positions", "filters")}
    assert {path.name for path in (run / "explain").iterdir()} == named | {"explain.json"} and len(named) == 16


def test_each_image_is_explained_by_the_fold_that_tested_it(make_run, ask):
    run = make_run()
    images = ask(run, method="rollout", images=1000).entry.images
    assert len(images) == len(ids_of_test(run, 0) | ids_of_test(run, 1))
    for image in images:
        assert image.image_id in ids_of_test(run, image.fold)


def test_the_score_is_that_of_this_folds_network(make_run, ask, small_phantom, phantom_manifest):
    """One image from scratch: decoded, resized, rolled out by its fold's network, scored against its mask."""
    run = make_run()
    explained = ask(run, method="rollout", images=1000).entry.images
    for fold in (0, 1):
        image = next(one for one in explained if one.fold == fold and one.mask)
        row = phantom_manifest.usable.set_index("image_id").loc[image.image_id]
        trained = load_trained(run / f"fold-{fold}")
        pixels = np.asarray(Image.open(small_phantom / row.path).convert("RGB"))
        batch = trained.preprocessing.normalised(torch.from_numpy(trained.preprocessing.resized(pixels).copy())[None])
        grid = rollout_maps(trained.model, batch, "ViT")[None]
        large = torch.nn.functional.interpolate(grid.double(), size=(64, 64), mode="bilinear")[0, 0].numpy()
        mask = np.asarray(Image.open(small_phantom / row.mask_path).convert("L")) > 127
        assert image.mask.area == pytest.approx(mask.mean())
        assert image.mask.share == pytest.approx(large[mask].sum() / large.sum(), rel=1e-5)
        assert image.mask.pointing == float(mask[np.unravel_index(large.argmax(), large.shape)])


def test_a_fold_explains_its_own_test_images_into_its_own_folder(make_run, ask):
    run = make_run()
    explained = ask(run / "fold-1", method="rollout", images=4)
    assert explained.folder == run / "fold-1" / "explain"
    assert {image.image_id for image in explained.entry.images} <= ids_of_test(run, 1)
    other = sorted(ids_of_test(run, 0))[0]
    with pytest.raises(UsvitError, match=r"train in fold-1.*was not trained on it"):
        ask(run / "fold-1", image_ids=[other])
    assert ask(run, image_ids=[other, other]).entry.images[0].fold == 0


def test_images_are_dealt_over_classes_and_errors_are_the_surest(make_run, ask):
    run = make_run()
    images = ask(run, method="rollout", images=6).entry.images
    labels = [image.label for image in images]
    assert {label: labels.count(label) for label in set(labels)} == {"benign": 2, "malignant": 2, "normal": 2}
    wrong = ask(run, method="rollout", errors=4).entry.images
    table = pd.concat([pd.read_csv(run / f"fold-{fold}" / "predictions.csv") for fold in (0, 1)])
    prob = table[["prob_benign", "prob_malignant", "prob_normal"]].to_numpy()
    predicted = np.array(["benign", "malignant", "normal"])[prob.argmax(1)]
    sure = sorted(prob.max(1)[predicted != table.label], reverse=True)[:4]
    assert [image.probabilities[image.predicted] for image in wrong] == pytest.approx(sure)
    assert all(image.predicted != image.label for image in wrong)


def test_the_class_is_the_predicted_one_unless_it_is_named(make_run, ask):
    run = make_run()
    for image in ask(run, method="gradcam", images=3).entry.images:
        assert image.class_ == image.predicted
    named = ask(run, method="gradcam", images=3, target="normal").entry
    assert [image.class_ for image in named.images] == ["normal"] * 3
    assert ask(run, method="rollout", images=3).entry.images[0].class_ is None


def test_a_repeated_method_takes_the_place_of_the_old_pictures(make_run, ask):
    run = make_run()
    ask(run, method="rollout", images=6)
    ask(run, method="positions")
    ask(run, method="rollout", images=1)
    assert len(list((run / "explain").glob("rollout-*.png"))) == 1 and (run / "explain" / "positions.png").is_file()


@pytest.mark.parametrize(
    ("model", "vit", "method"),
    [
        ("vit", None, "rollout"),
        ("timm:resnet10t", None, "gradcam"),
        ("patchconvnet_s1", None, "attention"),
    ],
)
def test_the_method_follows_the_network(make_run, ask, model, vit, method):
    run = make_run(model, vit)
    assert ask(run, images=2).method == method
    read(run / "explain")


def test_an_image_without_a_licence_is_not_copied_unless_asked_for(make_run, ask):
    run = make_run(licence="unclear")
    hidden = ask(run, method="rollout", images=3)
    assert hidden.hidden == ("phantom",) and not any(image.shows_image for image in hidden.entry.images)
    files = {image.file: (run / "explain" / image.file).read_bytes() for image in hidden.entry.images}
    shown = ask(run, method="rollout", images=3, include_images=True)
    assert shown.hidden == () and all(image.shows_image for image in shown.entry.images)
    assert all((run / "explain" / name).read_bytes() != content for name, content in files.items())


def test_another_networks_folder_is_left_alone(make_run, ask, tmp_path):
    first, second = make_run(name="a"), make_run(vit=SMALL_SHAPE | {"depth": 1}, name="b")
    ask(first, method="positions", out=tmp_path / "out")
    before = (tmp_path / "out" / "explain.json").read_bytes()
    with pytest.raises(UsvitError, match="other networks"):
        ask(second, method="positions", out=tmp_path / "out")
    assert (tmp_path / "out" / "explain.json").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(UsvitError, match="Nothing was changed"):
        ask(first, method="positions", out=tmp_path / "mine")


def test_two_explanations_at_once_do_not_lose_each_others_results(make_run, ask, tmp_path):
    run = make_run()
    with alone_in(tmp_path / "out"), pytest.raises(UsvitError, match="Another process is working on"):
        ask(run, method="positions", out=tmp_path / "out")
    ask(run, method="positions", out=tmp_path / "out")
    assert not (tmp_path / "out" / LOCK).exists()


def test_a_changed_image_is_refused(make_run, ask, small_phantom, tmp_path):
    run = make_run()
    copy = tmp_path / "phantom"
    shutil.copytree(small_phantom, copy)
    image = ask(run, images=1).entry.images[0].image_id
    path = copy / pd.read_parquet(run / "manifest.parquet").set_index("image_id").path[image]
    Image.fromarray(np.zeros((64, 64, 3), dtype=np.uint8)).save(path)
    with pytest.raises(UsvitError, match="not those that the run used"):
        ask(run, image_ids=[image], data_root={"": copy})


def test_a_manifest_that_climbs_out_is_refused(make_run, ask):
    run = make_run()
    table = pd.read_parquet(run / "manifest.parquet")
    table.loc[0, "path"] = "../../etc/passwd"
    table.to_parquet(run / "manifest.parquet", index=False)
    with pytest.raises(UsvitError, match="leads out"):
        ask(run)
