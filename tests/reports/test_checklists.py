"""Checklists and the authors' answers to them."""

import re
from importlib.resources import files

import pytest
import yaml
from jinja2 import Environment, meta

from tests.records.contents import content
from tests.reports.conftest import fake_run
from usvit.errors import UsvitError
from usvit.records import ExplanationRecord
from usvit.reports.author_answers import Answers, read_answers
from usvit.reports.checklists import AUTHORS, CHECKLISTS, NOTHING, PARTLY, RUN, fill_checklists
from usvit.reports.run_files import read_run
from usvit.reports.saliency_images import SaliencyImages, explained_fact
from usvit.reports.statements import facts_of
from usvit.reports.thumbnails import cards_of


def items(key):
    return yaml.safe_load(files("usvit.reports").joinpath("checklists", f"{key}.yaml").read_text())["items"]


def test_the_guidelines_numbers_are_kept():
    assert [item["number"] for item in items("claim_2024")] == [str(k) for k in range(1, 45)]
    numbers = [item["number"] for item in items("tripod_ai")]
    assert len(numbers) == len(set(numbers)) == 52
    mains = [int(re.match(r"\d+", number)[0]) for number in numbers]
    assert mains == sorted(mains)
    assert set(mains) == set(range(1, 28))
    stard = items("stard_ai")
    split = {15: "abcd", 16: "abc", 17: "ab", 26: "ab", 40: "ab"}
    assert [item["number"] for item in stard] == [f"{k}{part}" for k in range(1, 41) for part in split.get(k, [""])]
    changes = [item.get("change") for item in stard]
    assert (changes.count("new"), changes.count("modified")) == (14, 4)


@pytest.mark.slow
def test_every_fact_that_an_item_asks_for_can_be_had(tmp_path):
    run = read_run(fake_run(tmp_path / "run"))
    rollout = ExplanationRecord.model_validate(content("explain")["methods"]["rollout"])
    explained = SaliencyImages(methods={"rollout": rollout})
    known = {*facts_of(run, cards_of(run)), "limits"}
    assert explained_fact(explained).startswith("Created by usvit explain: attention rollout.")
    asked = set()
    for key in CHECKLISTS:
        for item in items(key):
            asked |= meta.find_undeclared_variables(Environment().parse(item.get("run", "")))
    assert asked - known <= {"explained", "devices"} - known | {"explained"}


def without_settings(record):
    """Leave the record of the evaluation of a table, which says nothing of networks, training and data."""
    record.clear()
    record.update(content("run-evaluation"))
    del record["files"]  # their hashes


@pytest.mark.slow
def test_a_run_that_recorded_nothing_supplies_next_to_nothing(tmp_path):
    run = read_run(fake_run(tmp_path / "run", change=without_settings))
    lists = fill_checklists(facts_of(run, {}), {})
    status = {item.number: item.status for item in lists[0].items}
    assert status["4"] == status["7"] == status["9"] == status["19"] == status["24"] == NOTHING
    assert status["37"] == RUN


@pytest.mark.slow
def test_the_authors_words_come_first_and_the_runs_stay_beside_them(tmp_path):
    run = read_run(fake_run(tmp_path / "run"))
    facts = facts_of(run, cards_of(run))
    claim, _, stard = fill_checklists(
        facts, {"claim_2024": {"7": "From our hospital.", "5": "Retrospective."}, "stard_ai": {"15d": "Radiologists."}}
    )
    own = {item.number: item for item in stard.items}
    assert (own["15d"].status, own["15d"].change, own["6"].status) == (AUTHORS, "new", NOTHING)
    assert "per image" in own["28"].run and own["30"].status == RUN
    by = {item.number: item for item in claim.items}
    assert (by["5"].status, by["5"].answer, by["5"].run) == (AUTHORS, "Retrospective.", "")
    assert by["7"].status == AUTHORS and "BUSI" in by["7"].run
    assert by["8"].status == PARTLY
    assert sum(claim.count(status) for status in (AUTHORS, RUN, PARTLY, NOTHING)) == 44


def test_what_users_write_is_never_a_template():
    facts = {"headline": "{{ 7 * 7 }} {% raw %}"}
    claim = fill_checklists(facts, {"claim_2024": {"44": "{{ 7 * 7 }}"}})[0]
    by = {item.number: item for item in claim.items}
    assert by["37"].run == "{{ 7 * 7 }} {% raw %}"
    assert by["44"].answer == "{{ 7 * 7 }}"


def test_answers_are_read(tmp_path):
    path = tmp_path / "answers.yaml"
    path.write_text(
        "summary: A study.\nlimits: [One hospital.]\nwatts: 65\nclaim_2024: {5: Retrospective.}\n"
        "tripod_ai: {3c: 12}\nstard_ai: {40b: Yes.}\n"
    )
    answers = read_answers(path)
    assert answers.items == {
        "claim_2024": {"5": "Retrospective."},
        "tripod_ai": {"3c": "12"},
        "stard_ai": {"40b": "Yes."},
    }
    assert (answers.summary, answers.limits, answers.watts) == ("A study.", ("One hospital.",), 65)
    path.write_text("")
    assert read_answers(path) == Answers()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("- a\n", "must be a mapping"),
        ("a: [\n", "not valid YAML"),
        ("claim_2042: {}\n", "Unknown key 'claim_2042'. Nearest: claim_2024"),
        ("watts: -3\n", "watts: Input should be greater than 0"),
        ("claim_2024: [a]\n", "claim_2024"),
        ("claim_2024: {5: {a: b}}\n", r"claim_2024\.5"),
    ],
)
def test_bad_answers_are_refused(tmp_path, content, message):
    path = tmp_path / "answers.yaml"
    path.write_text(content)
    with pytest.raises(UsvitError, match=message):
        read_answers(path)


def test_an_answer_to_an_item_that_does_not_exist_is_refused():
    with pytest.raises(UsvitError, match="Unknown item of CLAIM 2024 '45'"):
        fill_checklists({}, {"claim_2024": {"45": "x"}})
    with pytest.raises(UsvitError, match="cannot be read"):
        read_answers(files("usvit.reports").joinpath("nowhere.yaml"))
