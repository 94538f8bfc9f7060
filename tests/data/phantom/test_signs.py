import dataclasses

import pandas as pd
import pytest
from scipy.stats import ks_2samp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from usvit.data.phantom import SIGN_LAWS, PhantomSpec, sample_patient
from usvit.data.phantom.plan import draw_patient, plan_patients

pytestmark = pytest.mark.slow


def lesion_table(spec: PhantomSpec) -> pd.DataFrame:
    """One row a patient with a lesion or its stand-in; nothing is rendered."""
    rows = []
    for views in plan_patients(spec):
        patient = draw_patient(spec, views[0].number, views[0].label)
        lesion = patient.lesion
        row = {"label": views[0].label, "views": len(views)}
        row |= {name: getattr(lesion, name) for name in ("diameter", "depth", "across", "rotation", "density")}
        row |= {"spicules": len(lesion.spicules)}
        row |= dataclasses.asdict(lesion.signs)
        row |= {f"device_{k}": v for k, v in dataclasses.asdict(patient.device).items() if isinstance(v, float | int)}
        row |= {f"tissue_{k}": v for k, v in dataclasses.asdict(patient.tissue).items() if isinstance(v, float)}
        rows.append(row)
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def lesions() -> pd.DataFrame:
    return lesion_table(PhantomSpec(n=3000, seed=11))


def p_value(table: pd.DataFrame, column: str, a: str = "benign", b: str = "malignant") -> float:
    return float(ks_2samp(table.loc[table.label == a, column], table.loc[table.label == b, column]).pvalue)


def auc(table: pd.DataFrame, column: str) -> float:
    pair = table[table.label != "normal"]
    return float(roc_auc_score(pair.label == "malignant", pair[column]))


@pytest.mark.parametrize("sign", SIGN_LAWS)
def test_each_sign_speaks_for_its_class_and_none_decides_alone(lesions, sign):
    value = auc(lesions, sign)
    speaks = value if SIGN_LAWS[sign].shift > 0 else 1 - value
    assert 0.57 < speaks < 0.92


def test_signs_together_separate_the_classes_well_but_not_perfectly(lesions):
    pair = lesions[lesions.label != "normal"]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    score = cross_val_predict(model, pair[list(SIGN_LAWS)], pair.label == "malignant", cv=5, method="predict_proba")
    assert 0.93 < roc_auc_score(pair.label == "malignant", score[:, 1]) < 0.985


@pytest.mark.parametrize("other", ["malignant", "normal"])
def test_nothing_but_the_signs_differs_between_the_classes(lesions, other):
    columns = [c for c in lesions.columns if c not in ("label", *SIGN_LAWS)]
    assert len(columns) > 20
    p_values = {column: p_value(lesions, column, "benign", other) for column in columns}
    assert min(p_values.values()) > 0.01 / len(columns), p_values


def test_changing_the_class_of_a_patient_changes_the_signs_alone():
    for number in range(20):
        benign, malignant = (sample_patient(0, number, malignant) for malignant in (False, True))
        assert benign.lesion.signs != malignant.lesion.signs
        same_signs = dataclasses.replace(malignant.lesion, signs=benign.lesion.signs)
        assert dataclasses.replace(malignant, lesion=same_signs) == benign


def test_ablating_the_signs_gives_all_classes_the_same_signs():
    table = lesion_table(PhantomSpec(n=3000, seed=11, ablate="signs"))
    for sign in SIGN_LAWS:
        assert p_value(table, sign) > 0.01 / len(SIGN_LAWS)
        assert 0.45 < auc(table, sign) < 0.55


def test_ablating_the_signs_keeps_both_kinds_of_lesion(lesions):
    ablated = lesion_table(PhantomSpec(n=3000, seed=11, ablate="signs"))
    kept = lesions[lesions.label != "normal"]
    assert ablated.posterior.std() == pytest.approx(kept.posterior.std(), rel=0.1)
    assert ablated.posterior.mean() == pytest.approx(kept.posterior.mean(), abs=0.08)
