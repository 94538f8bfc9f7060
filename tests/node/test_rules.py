"""Which rule decides on a study."""

import pytest

from usvit.node.config.settings import NodeRule, RuleConditions
from usvit.node.rules import decide, meets

US = {"modality": "US", "manufacturer": "ACME [Europe]", "study_description": "Left BREAST us", "calling_ae": "SCANNER"}
OTHER = {"modality": "OT", "series_description": "screenshot"}


def rule(name, **when):
    return NodeRule(name=name, model="m", when=RuleConditions(**when))


def test_first_rule_that_an_image_meets_decides_and_only_images_that_meet_it_are_scored():
    rules = [rule("kidney", description="*kidney*"), rule("breast", modality="US"), rule("rest")]
    decision = decide(rules, {1: OTHER, 2: US, 3: US})
    assert decision.rule.name == "breast"
    assert decision.matching == {2, 3}
    assert decide(rules[:1], {1: OTHER, 2: US}).rule is None


def test_all_conditions_must_hold_for_the_same_image():
    both = [rule("both", modality="US", description="screenshot")]
    assert decide(both, {1: OTHER, 2: US}).rule is None


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, True),
        ({"description": "*breast*"}, True),
        ({"description": "breast"}, False),
        ({"description": "left breast u?"}, True),
        ({"manufacturer": "acme [europe]"}, True),
        ({"manufacturer": "acme [e]*"}, False),
        ({"body_part": "*"}, True),
        ({"body_part": "BREAST"}, False),
        ({"calling_ae": "SCAN*", "modality": "us"}, True),
    ],
)
def test_patterns_know_stars_and_question_marks_alone_and_no_case(conditions, expected):
    assert meets(RuleConditions(**conditions), US) is expected
