"""The training of a fold alone, as a search uses it: the same weights as in a run, and no test image is read."""

import numpy as np

from usvit.config import RunConfig
from usvit.data.datasets import roots_from
from usvit.data.loading import PixelStore
from usvit.evaluation import read_predictions
from usvit.experiments.cross_validation_setup import prepare
from usvit.experiments.fold_training import FoldTrainer
from usvit.progress import NO_PROGRESS
from usvit.records import RunRecord, load_record


def test_the_trained_fold_is_that_of_the_run_and_needs_no_test_image(tiny_run, small_phantom, tmp_path):
    config = RunConfig.model_validate(load_record(tiny_run / "run.json", RunRecord).config.model_dump())
    setup = prepare("cv", config, roots_from(small_phantom), NO_PROGRESS)
    store = PixelStore.build(
        setup.manifest, setup.preprocessing, memory_gb=1, folder=tmp_path, progress=NO_PROGRESS, with_lesions=False
    )
    rows, tested = setup.manifest.usable, setup.folds.query("fold == 0 and part == 'test'").image_id
    hidden = rows.image_id.isin(tested).to_numpy()
    store.pixels[hidden] = 0
    trainer = FoldTrainer(setup, store, NO_PROGRESS)
    trained = trainer.train(0, tmp_path / "state.pt")
    outputs = trained.validation.outputs(config.train.early_stopping.keep)
    written = read_predictions(tiny_run / "fold-0" / "predictions.csv").query("part == 'val'")
    assert hidden.any() and written.image_id.tolist() == rows.image_id.iloc[trained.at["val"]].tolist()
    logits = written.filter(regex="^logit").to_numpy()
    np.testing.assert_allclose(outputs.logits, logits, atol=1e-5)
