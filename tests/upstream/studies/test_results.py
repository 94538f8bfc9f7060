"""Figures are read from the line, or the pair of classifiers, that their name stands for."""

from types import SimpleNamespace

import pytest

from tests.records.contents import content
from usvit.records import WeightsRecord
from usvit.upstream.records.training import TransferRecord
from usvit.upstream.studies.kinds import check_figure
from usvit.upstream.studies.metric_names import title_of
from usvit.upstream.studies.results import figure_of, trained_on


def line(name, value):
    accuracy = {"value": value, "ci95": [value - 0.1, value + 0.1], "method": "t", "n_groups": 9}
    return {"name": name, "accuracy": accuracy, "mean_class_accuracy": value}


SEPARABILITY = TransferRecord.model_validate(
    content(
        "transfer",
        how="linear",
        summary=[
            line("random halves", 0.571),
            line("random halves, conditioned", 0.585),
            line("classes, on the test images", 0.9),
        ],
    )
)


@pytest.mark.parametrize(
    ("name", "value"), [("accuracy.halves", 0.571), ("accuracy.conditioned", 0.585), ("accuracy", 0.9)]
)
def test_separability_has_an_accuracy_for_each_of_its_lines(name, value):
    assert figure_of("transfer", SEPARABILITY, name).value == value


def test_a_line_that_a_probe_does_not_have_is_named():
    found = figure_of("transfer", SEPARABILITY, "accuracy.10")
    assert found.value is None and "10-shot" in found.reason


def test_the_best_of_k_random_cells_is_a_line_of_its_own():
    record = TransferRecord.model_validate(
        content(
            "transfer",
            how="finetune",
            summary=[line("best of 2", 0.6), line("best of 10", 0.7), line("fine-tuned (full)", 0.8)],
        )
    )
    figures = [
        figure_of("transfer", record, name) for name in ("accuracy.best_of_10", "accuracy", "accuracy.best_of_3")
    ]
    assert [figure.value for figure in figures] == [0.7, 0.8, None]
    assert "best of 3" in figures[2].reason
    assert check_figure("accuracy.best_of_10", "transfer") == "accuracy.best_of_10"


def test_titles_of_lines():
    assert title_of("accuracy.best_of_10") == "accuracy, best of 10 random cells"
    assert title_of("accuracy.10") == "accuracy, 10 images of each class"
    assert title_of("accuracy.conditioned") == "accuracy, random halves, conditioned"


def record_of(errors, share=None):
    results = [SimpleNamespace(top1=SimpleNamespace(value=1 - error)) for error in errors]
    return SimpleNamespace(results=results, disagreement=[] if share is None else [SimpleNamespace(share=share)])


def test_disagreement_of_one_classifier_is_its_error():
    assert figure_of("test", record_of([0.25]), "disagreement").value == pytest.approx(0.25)


def test_disagreement_of_two_classifiers_leaves_the_labels_out():
    share = [[0, 0.25, 0.5], [0.25, 0, 0.125], [0.5, 0.125, 0]]
    assert figure_of("test", record_of([0.25, 0.5], share), "disagreement").value == 0.125


def test_three_classifiers_have_no_single_disagreement():
    share = [[0.0] * 4] * 4
    found = figure_of("test", record_of([0.1, 0.2, 0.3], share), "disagreement")
    assert found.value is None and "3 results" in found.reason


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"source": "scratch"}, "nothing (random weights)"),
        (
            {"source": "package", "pretrained_by": "Tan 2019, photographs"},
            "Tan 2019, photographs; its images are not on record",
        ),
        ({"source": "file", "name": "x.safetensors"}, "not known; its images are not on record"),
        (
            {
                "source": "run",
                "pretrained_by": "Tan 2019, photographs",
                "lineage": [
                    {"source": {"name": "phantom", "images": 4000, "classes": 3}},
                    {"source": {"name": "fractals", "images": 900, "classes": 9}},
                ],
            },
            "phantom (4,000 images); fractals (900 images); Tan 2019, photographs",
        ),
        ({}, None),
    ],
)
def test_what_weights_were_trained_on_is_what_their_record_states(weights, said):
    assert trained_on(WeightsRecord.model_validate(weights)) == said
