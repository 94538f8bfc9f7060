import json
import re

import jsonschema
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.cli.runs import make_run
from tests.conftest import REPOSITORY
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.paired_tests import holm
from usvit.reports.comparison import compare

pytestmark = pytest.mark.slow

SCHEMA = json.loads((REPOSITORY / "docs/reference/compare.schema.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / name, seed=seed, skill=skill)
        for name, seed, skill in (("strong", 1, 2.5), ("weak", 2, 0.3), ("middle", 3, 1.0))
    ]


@pytest.fixture(scope="module")
def record(runs, tmp_path_factory):
    return compare(*runs, out=tmp_path_factory.mktemp("compared") / "out")[0].content()


def pooled(run):
    table = pd.read_csv(run / "predictions.csv", dtype={"image_id": str, "patient_id": str})
    return table.sort_values("image_id", ignore_index=True)


def test_json_is_what_the_file_holds_and_the_schema_describes(usvit, runs, record, tmp_path):
    answer = usvit("compare", *runs, "--out", tmp_path / "out", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out) == record == json.loads((tmp_path / "out" / "compare.json").read_text())
    jsonschema.validate(record, SCHEMA, jsonschema.Draft202012Validator)


def test_every_pair_is_compared_with_patients_respected(runs, record):
    assert [(pair["a"], pair["b"]) for pair in record["pairs"]] == [
        ("strong", "weak"), ("strong", "middle"), ("weak", "middle")
    ]  # fmt: skip
    strong, weak, _ = (pooled(run) for run in runs)
    positive = (strong.label == "malignant").to_numpy()
    expected = clustered_difference(positive, strong.prob_malignant, weak.prob_malignant, strong.group_id)
    found = record["pairs"][0]["auc"]
    assert found["value"] == pytest.approx(expected.value)
    assert found["ci95"] == pytest.approx(expected.ci95)
    assert found["p"] < 0.01
    right = [(table.prob_malignant > table.prob_benign).to_numpy() == positive for table in (strong, weak)]
    assert (
        record["pairs"][0]["mcnemar"]["p"] is None
        and "takes the models as given" in record["pairs"][0]["mcnemar"]["reason"]
    )
    assert (record["pairs"][0]["mcnemar"]["only_a"], record["pairs"][0]["mcnemar"]["only_b"]) == (
        int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    )  # fmt: skip


def test_p_values_of_several_pairs_are_corrected_after_holm(record):
    for name in ("auc", "auc_macro_ovr", "accuracy", "auc_over_folds"):
        raw = {index: pair[name]["p"] for index, pair in enumerate(record["pairs"])}
        assert {index: pair[name]["p_holm"] for index, pair in enumerate(record["pairs"])} == holm(raw)
        assert all(pair[name]["p_holm"] >= pair[name]["p"] for pair in record["pairs"])


def test_a_t_test_over_folds_takes_the_sizes_of_the_folds_from_the_run(runs, record):
    tables = [pooled(run) for run in runs[:2]]
    differences = []
    for fold in range(3):
        areas = []
        for table in tables:
            own = table[table.fold == fold]
            up, down = (own.prob_malignant[own.label == name].to_numpy() for name in ("malignant", "benign"))
            areas.append((up[:, None] > down[None]).mean())
        differences.append(areas[0] - areas[1])
    # A third is tested, a third stops the training, a third trains: n_test / n_train is 1.
    error = np.sqrt((1 / 3 + 1) * np.var(differences, ddof=1))
    found = record["pairs"][0]["auc_over_folds"]
    assert found["value"] == pytest.approx(np.mean(differences))
    assert found["ci95"][1] - found["ci95"][0] == pytest.approx(2 * 4.302653 * error, rel=1e-5)


def test_tables_are_compared_as_runs_are(usvit, runs, record, tmp_path):
    tables = [run / "predictions.csv" for run in runs[:2]]
    by_table = json.loads(usvit("compare", *tables, "--out", tmp_path / "b", "--json").out)
    found, same = by_table["pairs"][0]["auc"], record["pairs"][0]["auc"]
    assert {key: found[key] for key in ("value", "ci95", "p")} == {key: same[key] for key in ("value", "ci95", "p")}
    assert [run["name"] for run in by_table["runs"]] == ["strong/predictions.csv", "weak/predictions.csv"]


def altered(folder, change):
    """A run whose pooled table was changed, as a table of its own."""
    path = folder / "changed.csv"
    change(pooled(make_run(folder / "base", seed=5))).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.assign(fold=(t.fold + 1) % 3), "the folds in column 'fold' contradict those of strong"),
        (lambda t: t.iloc[1:], "1 of 90 tested images of strong have no row"),
        (lambda t: t.assign(label=["benign", *t.label[1:]]), "the labels in column 'label' contradict those of strong"),
    ],
    ids=["folds", "images", "labels"],
)  # fmt: skip
def test_what_differs_between_runs_that_are_no_pair_is_named(usvit, runs, tmp_path, change, said):
    answer = usvit("compare", runs[0], altered(tmp_path, change), "--out", tmp_path / "out")
    assert answer.code == 2
    assert said in answer.err
    assert not (tmp_path / "out").exists()


def test_one_run_or_one_run_twice_is_no_comparison(usvit, runs, tmp_path):
    for given, said in ((runs[:1], "at least two"), ([runs[0], runs[0]], "named twice")):
        answer = usvit("compare", *given, "--out", tmp_path / "out")
        assert (answer.code, said in answer.err) == (2, True)


def test_a_folder_with_other_files_is_left_alone(usvit, runs, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    answer = usvit("compare", *runs, "--out", tmp_path)
    assert answer.code == 2
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def test_the_same_runs_give_the_same_bytes_and_the_lines_say_who_is_better(usvit, runs, tmp_path):
    outs = [usvit("compare", *runs, "--out", tmp_path / name).out for name in ("a", "b")]
    for file in ("compare.json", "compare.md", "compare.tex", "compare.html"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    areas, _, decisions = outs[0].partition("\nDecisions\n")
    pair = areas.partition("1. strong minus weak\n")[2].splitlines()[:3]
    assert [line.split("  ")[1] for line in pair] == [
        "AUC within folds: these ways of training",  # the headline first
        "AUC, pooled: these predictions",
        "Accuracy",
    ]
    assert "strong minus weak\n  most probable class  " in decisions
    assert "p, Holm" in outs[0]
    assert "45 groups" in outs[0]
    assert "Warning:" in outs[0]  # 45 groups are few


def test_decisions_are_compared_fold_by_fold_at_every_operating_point(runs, record):
    strong, weak = (pooled(run) for run in runs[:2])
    first = record["pairs"][0]["decisions"][0]
    assert first["rule"] == "most probable class" and len(record["pairs"][0]["decisions"]) > 3
    up = (strong.label == "malignant").to_numpy()
    right = [(table.prob_malignant > table.prob_benign).to_numpy() == up for table in (strong, weak)]
    found = {"accuracy": record["pairs"][0]["accuracy"], **first}
    for name, at in (("sensitivity", up), ("specificity", ~up), ("accuracy", up | ~up)):
        d = [(right[0][own].mean() - right[1][own].mean()) for own in (at & (strong.fold == k) for k in range(3))]
        t = np.mean(d) / np.sqrt((1 / 3 + 1) * np.var(d, ddof=1))  # n_test / n_train is 1
        assert found[name]["value"] == pytest.approx(np.mean(d))
        assert found[name]["p"] == pytest.approx(2 * stats.t.sf(abs(t), 2))


def test_holm_reaches_every_p_of_decisions_over_all_pairs(record):
    values = [
        one[name]
        for pair in record["pairs"]
        for one in pair["decisions"]
        if one["reason"] is None
        for name in ("sensitivity", "specificity")
    ]
    raw = {number: value.get("p") for number, value in enumerate(values)}
    assert {number: value.get("p_holm") for number, value in enumerate(values)} == holm(raw)


def test_a_corrected_p_stands_beside_every_p(record, tmp_path, runs):
    folder = compare(*runs, out=tmp_path / "out", margin=0.1)[1]
    page, tex = ((folder / f"compare.{kind}").read_text() for kind in ("md", "tex"))
    headers = [re.split(r" *\| *", line) for line in re.findall(r"^\|.*\|$(?=\n\|---)", page, flags=re.M)]
    headers += [line.strip(" \\").split(" & ") for line in re.findall(r"toprule\n(.*)\n", tex)]
    found = 0
    for cells in headers:
        for number, cell in enumerate(cells):
            if cell in ("p", "$p$"):
                found += 1
                assert cells[number + 1] in ("p, Holm", "$p$, Holm"), cells
    assert found == 2 * 6  # in the tables of differences, decisions (two), claims (two) and subgroups
    for table in page.split("\n\n"):
        assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) <= 1, table
    assert record["pairs"][0]["accuracy"]["p_holm"] is not None


def test_a_stated_margin_is_echoed_and_judged_by_the_bound(usvit, runs, tmp_path):
    answer = usvit("compare", *runs[:2], "--margin", "0.05", "--out", tmp_path / "out", "--json")
    assert answer.code == 0, answer.err
    record = json.loads(answer.out)
    jsonschema.validate(record, SCHEMA, jsonschema.Draft202012Validator)
    (pair,) = record["pairs"]
    assert record["non_inferiority_margin"] == pair["non_inferiority"]["margin"] == 0.05
    strong = pair["non_inferiority"]["auc"]
    for side, bound, verdict in (
        ("a_vs_b", pair["headline"]["ci95"][0], "non-inferior"),
        ("b_vs_a", -pair["headline"]["ci95"][1], "not shown to be non-inferior"),
    ):
        assert strong[side]["bound"] == pytest.approx(bound) and strong[side]["verdict"] == verdict
    for side in ("a_vs_b", "b_vs_a"):  # of the two directions at most one can be wrong
        assert strong[side]["p_holm"] == strong[side]["p"]
    assert pair["non_inferiority"]["accuracy"]["margin"] == 0.05
    html = (tmp_path / "out" / "compare.html").read_text()
    assert "Non-inferiority with a margin of 0.05" in html and "not shown to be non-inferior" in html
    said = usvit("compare", *runs[:2], "--non-inferiority-margin", "0.05", "--out", tmp_path / "out").out
    assert re.search(r"strong against weak +AUC +non-inferior +bound", said) and "with a margin of 0.05" in said


def test_equivalence_is_judged_by_the_90_per_cent_interval(usvit, runs, tmp_path):
    words = ["compare", *runs, "--margin", "0.1", "--test", "equivalence", "--out", tmp_path / "out"]
    record = json.loads(usvit(*words, "--json").out)
    jsonschema.validate(record, SCHEMA, jsonschema.Draft202012Validator)
    assert record["equivalence_margin"] == 0.1 and record["non_inferiority_margin"] is None
    areas = [pair["equivalence"]["auc"] for pair in record["pairs"]]
    for pair, area in zip(record["pairs"], areas, strict=True):
        low, high = pair["headline"]["ci95"]
        assert low < area["ci90"][0] < area["ci90"][1] < high and "non_inferiority" not in pair
        assert (area["p"] < 0.05) == (max(map(abs, area["ci90"])) < 0.1)
        assert (area["verdict"] == "equivalent") == (area["p_holm"] < 0.05)
    assert {k: area["p_holm"] for k, area in enumerate(areas)} == holm({k: area["p"] for k, area in enumerate(areas)})
    html = (tmp_path / "out" / "compare.html").read_text()
    assert 'id="equivalence"' in html and "Dashed lines: the margin" in html
    assert re.search(r"strong and weak +AUC +not shown to be equivalent +90 % interval \+0\.", usvit(*words).out)


def test_only_the_primary_figure_has_verdicts_and_they_use_the_corrected_p(usvit, runs, tmp_path):
    words = ["compare", *runs, "--margin", "0.1", "--primary", "Specificity", "--out", tmp_path / "out"]
    record = json.loads(usvit(*words, "--json").out)
    jsonschema.validate(record, SCHEMA, jsonschema.Draft202012Validator)
    assert record["primary_figure"] == "specificity, most probable class"
    claims = {}
    for pair in record["pairs"]:
        own = pair["non_inferiority"]
        for side, (one, other) in (("a_vs_b", (pair["a"], pair["b"])), ("b_vs_a", (pair["b"], pair["a"]))):
            claims[f"{one} against {other}"] = own["decisions"][0]["specificity"][side]
            assert own["auc"][side]["verdict"] is own["accuracy"][side]["verdict"] is None
            assert own["decisions"][1]["specificity"][side]["verdict"] is None
    for claim in claims.values():
        assert (claim["verdict"] == "non-inferior") == (claim["p_holm"] < 0.025)
    said = [line for line in usvit(*words).out.splitlines() if re.match(r"\w+ against \w+ ", line)]
    assert len(said) == 6 and all("  specificity, most probable class  " in line for line in said)
    texts = [(tmp_path / "out" / f"compare.{kind}").read_text() for kind in ("html", "md", "tex")]
    for runs_named, claim in claims.items():
        (line,) = (line for line in said if line.startswith(runs_named))
        assert f"  {claim['verdict']}" in line
        for text in texts:
            (row,) = (row for row in text.splitlines() if runs_named in row and "specificity, most" in row)
            assert claim["verdict"] in row and ("not shown" in row) == ("not shown" in claim["verdict"])


def test_a_claim_of_one_pair_alone_may_fail_among_three(runs, tmp_path):
    """The bound of one claim is above the margin, but not its corrected p; the verdict and its reason say so."""
    for margin in np.arange(0.01, 0.5, 0.01):
        record, out = compare(*runs, margin=float(margin), out=tmp_path / "out")
        claims = [
            one for pair in record.pairs for one in (pair.non_inferiority.auc.a_vs_b, pair.non_inferiority.auc.b_vs_a)
        ]
        lost = [one for one in claims if one.bound is not None and one.bound > -margin and one.p_holm >= 0.025]
        if lost:
            break
    assert lost and all(one.p < 0.025 and one.verdict == "not shown to be non-inferior" for one in lost)
    why = "p after Holm&#39;s correction is not below 0.025"
    assert lost[0].reason == why.replace("&#39;", "'") and why in (out / "compare.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--margin", "0.05", "--primary", "sensitivty"], "Unknown primary figure 'sensitivty'. Nearest: sensitivity"),
        (["--primary", "accuracy"], "--primary accuracy needs a --margin"),
        (["--margin", "0"], "above 0 and below 0.5"),
        (["--margin", "0.5"], "above 0 and below 0.5"),
        (["--margin", "-0.05"], "without a sign"),
        (["--margin", "nan"], "--margin is nan"),
        (["--test", "equivalence"], "needs a --margin"),
        (["--margin", "0.05", "--test", "other"], "Known: equivalence, noninferiority"),
    ],
)
def test_a_margin_or_test_that_cannot_be_is_refused_before_anything_is_written(usvit, runs, tmp_path, words, said):
    answer = usvit("compare", *runs[:2], *words, "--out", tmp_path / "out")
    assert answer.code == 2 and said in answer.err and not (tmp_path / "out").exists()
    assert answer.err.startswith("Error: ") and answer.err.count("\n") == 1
