"""Clusters of near-duplicates with different labels: as many as the audit counts, named, and with what to do."""

import pandas as pd

from usvit.records import MetricsRecord, RunRecord
from usvit.reports.contradictions import contradictions, contradictions_sentences
from usvit.reports.run_files import Run


def make_run(manifest=True):
    rows = pd.DataFrame(
        [
            ("a", "benign", "copies:1", None),
            ("b", "malignant", "copies:1", None),
            ("c", "benign", "copies:2", "pixel-identical to 'd'"),
            ("d", "malignant", "copies:2", "pixel-identical to 'c'"),
            ("e", "benign", "copies:3", None),
            ("f", "benign", "copies:3", None),
            ("g", "benign", "patient:x:1", None),
            ("h", "malignant", "patient:x:1", None),
        ],
        columns=["image_id", "label", "group_id", "exclude_reason"],
    ).assign(dataset="x")
    test = rows[rows["exclude_reason"].isna()]
    run = Run(RunRecord.model_construct(), MetricsRecord.model_construct(), test, test, test, {}, {})
    return run if not manifest else Run(run.record, run.metrics, test, test, test, {}, {}, manifest=rows)


def test_the_clusters_are_those_of_the_audit_and_those_that_were_left_out_are_marked():
    tested, left_out = contradictions(make_run())
    assert tested.words == "a (benign), b (malignant)"
    assert left_out.words.startswith("c (benign), d (malignant); not tested")
    how_many, what_to_do = contradictions_sentences([tested, left_out])
    assert how_many == (
        "2 clusters of near-duplicates in the manifest, as in an audit of the same images, carry different labels; "
        "images of 1 were left out of this run, so that 1 are tested."
    )
    assert "--keep-list" in what_to_do and "correct the label" in what_to_do


def test_without_a_manifest_the_tested_images_are_what_is_known():
    (only,) = contradictions(make_run(manifest=False))
    assert only.tested and contradictions_sentences([]) == []
