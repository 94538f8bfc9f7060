"""What ``usvit report`` leaves on the disk: page, Markdown, figures, overview; for one run and for several."""

import json
import re
from xml.etree import ElementTree

import pytest

from tests.records.contents import content
from tests.reports.conftest import fake_run
from usvit.files import write_json
from usvit.markup import markdown_text as text

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script> | $x^2$ `a` [b](c) _d_"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    from usvit.reports import Options, write_reports

    run = fake_run(tmp_path_factory.mktemp("runs") / "one")
    (one,), index = write_reports([run], None, Options(), ("svg", "pdf"))
    assert index is None
    return one


def test_figures_are_files_for_a_paper_with_their_legend(written):
    names = {path.name for path in written.figures}
    stems = {
        "roc",
        "roc-classes",
        "precision-recall",
        "calibration",
        "decision-curve",
        "risk-coverage",
        "rule-out",
        "folds",
        "flow-diagram",
        *(f"loss-{k}" for k in range(5)),
    }
    assert names == {f"{stem}.{suffix}" for stem in stems for suffix in ("svg", "pdf")}
    folder = written.figures[0].parent
    svg = (folder / "roc-classes.svg").read_text()
    words = "".join(ElementTree.fromstring(svg).itertext())
    assert "malignant, AUC" in words
    assert not re.search(r"#0404\d\d|#0[123]0[123]0[123]", svg)  # no stand-in colour of the page
    assert (folder / "roc.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_figures_are_the_same_bytes_each_time(written, tmp_path):
    from usvit.reports import Options, write_reports

    (again,), _ = write_reports([written.page.parent], tmp_path / "again", Options(), ("svg", "pdf"))
    for first, second in zip(written.figures, again.figures, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name
    assert again.page.read_bytes() == written.page.read_bytes()


def test_hostile_names_are_plain_words_in_figures_and_markdown(tmp_path):
    from usvit.reports import Options, write_reports

    run = fake_run(tmp_path / "run", classes=("benign", HOSTILE, "_x"), change=lambda r: r.update(name=HOSTILE))
    (one,), _ = write_reports([run], None, Options(), ("svg",))
    words = "".join(ElementTree.fromstring((run / "figures" / "roc-classes.svg").read_text()).itertext())
    assert HOSTILE in words and "_x, AUC" in words
    markdown = one.markdown.read_text()
    assert "<script" not in markdown
    assert markdown.startswith(f"# {text(HOSTILE)}\n")
    assert text(HOSTILE) == r"&lt;script&gt;alert(1)&lt;/script&gt; \| \$x^2\$ \`a\` \[b\](c) \_d\_"


def test_markdown_holds_the_numbers_and_whole_tables(written):
    metrics = json.loads((written.page.parent / "metrics.json").read_text())
    markdown = written.markdown.read_text()
    quoted, (low, high) = metrics["headline"]["accuracy"], metrics["headline"]["accuracy"]["ci95"]
    assert f"| Accuracy | {quoted['value']:.3f} ({low:.3f} to {high:.3f}) | 778 |" in markdown
    for title in (
        "Results",
        "Operating points",
        "Subgroups",
        "Cases",
        "Leakage",
        "Model card",
        "Limits",
        "Checklists",
    ):
        assert f"\n## {title}" in markdown
    assert "\n### CLAIM 2024" in markdown and "\n### TRIPOD" in markdown
    for block in re.findall(r"(?:^\|.*\|\n)+", markdown, flags=re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    for path in re.findall(r"!\[[^]]*\]\(([^)]*)\)", markdown):
        assert (written.page.parent / path).is_file()


def test_several_runs_stand_side_by_side(usvit, tmp_path, visit):
    runs = [fake_run(tmp_path / name, seed=seed, n=200) for name, seed in (("a", 0), ("b & <b>", 1))]
    answer = usvit("report", *runs, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    page = visit(tmp_path / "out" / "index.html")
    assert page.locator("tbody tr").count() == 2
    page.locator("tbody a").nth(1).focus()
    assert page.evaluate("document.activeElement.innerText") == "b & <b>"
    for name in ("a", "b & <b>"):
        assert (tmp_path / "out" / name / "report.html").is_file()
        assert not (tmp_path / name / "report.html").exists()
    link = page.locator("tbody a").nth(1).get_attribute("href")
    assert link == "b%20%26%20%3Cb%3E/report.html"


def audit_of(manifest_sha256):
    """An ``audit.json`` that found calipers."""
    flag_counts = {"calipers": {"benign": 3, "malignant": 2}}
    return content("audit", datasets=["busi"], manifest_sha256=manifest_sha256, n_images=780, flag_counts=flag_counts)


def test_the_command_takes_answers_and_an_audit(usvit, run_dir, tmp_path):
    answers = tmp_path / "answers.yaml"
    answers.write_text(
        "summary: We asked <b>whether</b>.\nlimits: [Only one reader.]\nwatts: 50\nclaim_2024: {44: None.}\n"
    )
    audit = audit_of(json.loads((run_dir / "run.json").read_text())["data"]["manifest_sha256"])
    (tmp_path / "audit").mkdir()
    write_json(tmp_path / "audit" / "audit.json", audit)
    out = tmp_path / "out"
    said = usvit("report", run_dir, "--answers", answers, "--audit", tmp_path / "audit", "--out", out)
    assert said.code == 0, said.err
    page = (out / "report.html").read_text()
    assert "We asked &lt;b&gt;whether&lt;/b&gt;." in page
    assert "Only one reader." in page
    assert "50 W (supplied" in page
    assert "calipers 5 (benign 3, malignant 2)" in page
    assert not (run_dir / "report.html").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--figures", "png"), "Unknown format of figures 'png'"),
        (("--answers", "nowhere.yaml"), "nowhere.yaml cannot be read"),
        (("--audit", "nowhere"), "nowhere"),
        (("--data-root", "nowhere"), "does not allow"),
    ],
)
def test_what_cannot_be_done_is_told(usvit, run_dir, options, message):
    said = usvit("report", run_dir, *options)
    if message == "does not allow":  # the licence forbids images before anybody looks for them
        assert said.code == 0
        assert message in (run_dir / "report.html").read_text()
    else:
        assert said.code == 2
        assert message in said.err
        assert not (run_dir / "report.html").exists()


def test_an_audit_of_other_images_and_two_runs_of_one_name_are_refused(usvit, run_dir, tmp_path):
    write_json(tmp_path / "audit.json", audit_of("0" * 64))
    said = usvit("report", run_dir, "--audit", tmp_path / "audit.json")
    assert said.code == 2 and "audit of other images" in said.err
    other = fake_run(tmp_path / "elsewhere" / run_dir.name)
    said = usvit("report", run_dir, other, "--out", tmp_path / "out")
    assert said.code == 2 and "Two runs are called" in said.err


def test_a_stated_prevalence_and_differences_of_subgroups_stand_on_page_and_in_markdown(written, tmp_path):
    from usvit.reports import Options, write_reports

    (one,), _ = write_reports([written.page.parent], tmp_path, Options(prevalence=0.006))
    page, markdown = one.page.read_text(), one.markdown.read_text()
    assert "Predictive values at a prevalence of 0.006" in page
    assert "Predictive values at a prevalence of 0.006" in markdown
    assert "scanner A minus scanner B" in page and "scanner A minus scanner B" in markdown
    assert "Predictive values at a prevalence of" not in written.page.read_text()
