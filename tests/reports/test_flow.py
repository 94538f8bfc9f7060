"""The flow of the images of a run, of an evaluation and of scored files: it adds up, and names no one."""

import pandas as pd
import pytest

from tests.records.contents import content
from tests.reports.conftest import fake_run
from usvit.data.splits import CONFLICT, NOT_KEPT, OTHER_CLASS, kind_of_exclusion
from usvit.documents import markdown_document, terminal_text
from usvit.records import SummaryRecord
from usvit.reports.figures_flow import flow_plot
from usvit.reports.flow import flow_of_folder, flow_of_run, flow_of_scores
from usvit.reports.report_document import headline_document
from usvit.reports.run_files import read_run


def numbers(flow, *, left_out):
    return {step.what: step.n for step in flow.steps if step.left_out == left_out}


def skip_two(record):
    record["data"]["skipped"] = [{"path": "a.png", "reason": "empty"}, {"path": "b.png", "reason": "empty"}]


@pytest.mark.slow
def test_the_flow_of_a_hold_out_with_a_keep_list_adds_up(tmp_path):
    folder = fake_run(tmp_path / "run", kind="train", n=120, patients=60, change=skip_two)
    used = pd.read_parquet(folder / "manifest.parquet").assign(exclude_reason=None)
    left = used[:4].assign(
        image_id=["x1", "x2", "x3", "x4"],
        patient_id=["secret", "secret", "p000", "other"],
        exclude_reason=[f"{NOT_KEPT} my list.csv", f"{CONFLICT} 'x3' of busi", OTHER_CLASS, "moved by hand"],
    )
    pd.concat([used, left]).to_parquet(folder / "manifest.parquet", index=False)
    run = read_run(folder)
    flow = flow_of_run(run)
    assert flow == flow_of_folder(folder, run.metrics)
    sizes = next(iter(run.parts.values()))
    assert numbers(flow, left_out=True) == {
        "files that could not be read": 2,
        "identical pixels with different labels": 1,
        "of another class than asked for": 1,
        "not in the keep-list": 1,
        "for another reason": 1,
        "used for training": sizes["train"],
        "used for inner validation": sizes["val"],
    }
    assert numbers(flow, left_out=False) == {"Found": 126, "Included": 120, "Tested": run.metrics.n_images}
    patients = {step.what: step.n_patients for step in flow.steps if step.n_patients}
    assert (patients["Found"], patients["not in the keep-list"], patients["Included"]) == (62, 1, 60)
    assert patients["Tested"] == run.test["patient_id"].nunique()
    assert {end.name: end.n for end in flow.ends} == run.metrics.class_counts
    assert all(sum(n for _, n in end.results) == end.n for end in flow.ends)
    called = sum(dict(end.results)["called positive"] for end in flow.ends)
    probs = run.test[[name for name in run.test if name.startswith("prob_")]]
    assert called == (probs.idxmax(axis=1) == "prob_malignant").sum()

    said = headline_document(run.metrics, flow)
    for text in (terminal_text(said), markdown_document(said, {}), flow_plot(flow).svg()):
        assert "not in the keep-list" in text
        assert "my list" not in text and "secret" not in text
    assert "Per patient" in terminal_text(said) and "hold for the prevalence" in " ".join(terminal_text(said).split())


def test_the_flow_of_scored_files_adds_up():
    summary = SummaryRecord.model_validate(content("scores"))
    flow = flow_of_scores(summary)
    lost = sum(one.rows for one in summary.failures.values())
    assert numbers(flow, left_out=False) == {
        "Found": summary.counts.frames_scored + lost,
        "Scored": summary.counts.frames_scored,
    }
    assert sum(numbers(flow, left_out=True).values()) == lost


def test_a_reason_has_a_kind_without_names():
    reasons = [f"{CONFLICT} 'a' of b, which is labelled c", OTHER_CLASS, f"{NOT_KEPT} k.csv", "x", None, float("nan")]
    kinds = [kind_of_exclusion(one) for one in reasons]
    assert kinds[3:] == ["for another reason", "", ""] and len(set(kinds[:4])) == 4
