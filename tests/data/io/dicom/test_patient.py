"""Whether two files can be of one patient."""

import pytest
from pydicom import Dataset

from usvit.data.io import PatientIdentity, differing_patients


def of(**tags):
    data = Dataset()
    for keyword, value in {"PatientID": "1", "PatientName": "Doe^Jane", "PatientBirthDate": "19700101", **tags}.items():
        setattr(data, keyword, value)
    return PatientIdentity.of(data)


@pytest.mark.parametrize(
    ("tags", "differing"),
    [
        ({"PatientID": "2"}, ("PatientID",)),
        ({"PatientID": "01"}, ("PatientID",)),
        ({"PatientBirthDate": "19710101"}, ("PatientBirthDate",)),
        ({"PatientName": "Roe^Mary", "PatientBirthDate": ""}, ("PatientName",)),
        ({"PatientID": "", "PatientName": "Roe^Mary"}, ("PatientID", "PatientName")),
        ({"PatientID": "", "PatientBirthDate": ""}, ("PatientID",)),
        ({}, ()),
        ({"PatientID": " 1 "}, ()),
        ({"PatientName": "DOE JANE"}, ()),
        ({"PatientName": "Do\u00e9^Jane^Mary=\u5c71"}, ()),
        ({"PatientName": ""}, ()),
        ({"PatientName": "Jane^Do"}, ()),  # a spelling, since number and birth date are the same
        ({"PatientBirthDate": ""}, ()),
        ({"PatientID": ""}, ()),  # name and birth date are the same
    ],
)
def test_two_files_differ_by_what_tells_patients_apart_and_by_nothing_else(tags, differing):
    assert of().differences(of(**tags)) == of(**tags).differences(of()) == differing
    hidden = [one.hidden(lambda text: text and f"#{hash(text)}") for one in (of(), of(**tags))]
    assert hidden[0].differences(hidden[1]) == differing


def test_the_same_number_of_two_hospitals_is_of_two_patients():
    assert of(IssuerOfPatientID="A").differences(of(IssuerOfPatientID="B")) == ("IssuerOfPatientID",)
    assert of(IssuerOfPatientID="A").differences(of()) == ()


def test_of_many_files_each_is_compared_with_all_before():
    blank = of(PatientBirthDate="")
    assert differing_patients([blank, of(), blank]) == ()
    assert differing_patients([blank, of(), of(PatientBirthDate="19990101")]) == ("PatientBirthDate",)
    assert differing_patients([]) == ()
