"""The file of a study: what it may say, and what is refused."""

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.settings_tables import check_page, table
from usvit.config.listing import list_settings
from usvit.errors import UsvitError
from usvit.reviewing.settings import ReviewSettings, load_review

SOURCE = {"images": ["images"]}


def load(tmp_path, **settings):
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump({"source": SOURCE, **settings}))
    return load_review(file)


def test_paths_are_relative_to_the_folder_of_the_file(tmp_path):
    settings = load(tmp_path)
    assert settings.source.images == (tmp_path / "images",)
    assert settings.out == tmp_path / "review-study"


@pytest.mark.parametrize(
    ("protocol", "asked"),
    [("reader_study", {"birads", "malignancy"}), ("labelling", {"class", "birads", "margin", "quality", "exclude"})],
)
def test_a_study_without_questions_asks_the_usual_ones(tmp_path, protocol, asked):
    assert asked <= {one.name for one in load(tmp_path, protocol=protocol).questions}


def test_birads_is_offered_with_its_categories(tmp_path):
    question = load(tmp_path).question("birads")
    assert [one.value for one in question.choices] == ["0", "1", "2", "3", "4a", "4b", "4c", "5", "6"]


WRONG = [
    ({"titel": "x"}, "titel.*title"),
    ({"source": {}}, "name one of source.run, source.dataset and source.images"),
    ({"source": {"images": ["a"], "dataset": "busi"}}, "name one of"),
    ({"source": {"images": ["a"], "maps": "m"}}, "source.maps belongs to source.run"),
    ({"readers": ["A", "a"]}, "the reader a is named twice"),
    ({"readers": ["model"]}, "no reader can be named model"),
    ({"readers": ["../x"]}, "readers"),
    ({"readers": []}, "readers"),
    ({"protocol": "triage"}, "protocol triage shows a model: name source.run"),
    ({"design": "crossover"}, "design crossover shows a model"),
    ({"protocol": "labelling", "design": "sequential"}, "design sequential belongs to protocol reader_study"),
    ({"protocol": "labelling", "arbiter": "C"}, "an arbiter belongs to protocol labelling with two readers or more"),
    ({"questions": [{"name": "q"}]}, "q has 0 answers"),
    ({"questions": [{"name": "q", "choices": ["a"]}]}, "q has 1 answers"),
    ({"questions": [{"name": "q", "choices": ["a", "a"]}]}, "'a' twice"),
    ({"questions": [{"name": "truth", "kind": "text"}]}, "'truth' is a column"),
    ({"questions": [{"name": "q", "kind": "scale", "low": 5, "high": 5}]}, "low 5.* and high 5"),
    ({"questions": [{"name": "q", "kind": "text"}, {"name": "q", "kind": "text"}]}, "two questions have the name q"),
    ({"questions": [{"name": "q", "kind": "text", "stages": ["aided"]}]}, "no question is asked in the stage unaided"),
    ({"rating": "nothing"}, "names the question nothing"),
    ({"questions": [{"name": "q", "kind": "text"}], "rating": "q"}, "neither a scale nor birads"),
    ({"training": -1}, "training"),
]


@pytest.mark.parametrize(("settings", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_a_wrong_setting_is_named(tmp_path, settings, said):
    with pytest.raises(UsvitError, match=said) as error:
        load(tmp_path, **settings)
    assert "study.yaml" in str(error.value)


def test_the_rating_is_the_last_scale_or_category(tmp_path):
    assert load(tmp_path).rating_question.name == "malignancy"
    assert load(tmp_path, rating="birads").rating_question.name == "birads"
    assert load(tmp_path, questions=[{"name": "q", "kind": "text"}]).rating_question is None


def test_settings_can_be_made_in_python():
    assert ReviewSettings(source={"run": "runs/x"}, design="sequential").stages == ("unaided", "aided")


PAGE = REPOSITORY / "docs" / "reference" / "review-settings.md"
INTRODUCTION = """# Settings of a review

The file of a study of `usvit review`, YAML ([how to review cases](../how-to/review.md)). Relative paths are relative to
the folder of the file. An unknown key is an error that names the most similar known key.
`tests/reviewing/test_settings.py` makes this page from `usvit/reviewing/settings.py`.

"""


def test_the_page_of_the_settings_is_that_of_the_source():
    places = {"questions": "[]", "questions.choices": "[]", "questions[].choices": "[]"}
    check_page(PAGE, INTRODUCTION + table(list_settings(ReviewSettings, places)), "tests/reviewing/test_settings.py")
