from usvit.config import EarlyStoppingConfig
from usvit.training.early_stopping import EarlyStopping


def follow(values, **config):
    best = EarlyStopping(EarlyStoppingConfig(**config))
    stopped = None
    for step, value in enumerate(values, start=1):
        best.update(step, value)
        if best.should_stop and stopped is None:
            stopped = step
    return best.best_step, stopped


def test_a_loss_is_best_at_its_lowest_and_an_auc_at_its_highest():
    assert follow([3.0, 1.0, 2.0], monitor="val_loss", patience=None) == (2, None)
    assert follow([0.3, 0.1, 0.9], monitor="val_auc", patience=None) == (3, None)


def test_patience_counts_evaluations_without_a_better_one():
    assert follow([1.0, 2.0, 2.0, 0.5, 2.0, 2.0, 2.0], patience=3) == (4, 7)


def test_a_tie_is_not_better_and_undefined_never_is():
    assert follow([1.0, 1.0, 1.0], patience=2) == (1, 3)
    assert follow([None, 2.0, None], patience=None) == (2, None)
    assert follow([float("nan"), 2.0, float("nan")], patience=None) == (2, None)


def test_the_state_goes_on_after_saving():
    one, two = EarlyStopping(EarlyStoppingConfig(patience=2)), EarlyStopping(EarlyStoppingConfig(patience=2))
    one.update(1, 0.5)
    one.update(2, 0.6)
    two.load(one.state())
    two.update(3, 0.7)
    assert two.should_stop and two.best_step == 1
