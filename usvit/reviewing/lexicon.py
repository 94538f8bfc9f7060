"""The usual questions of each protocol, with the words of the BI-RADS lexicon for ultrasound.

Source: Mendelson et al., ACR BI-RADS Ultrasound, in: ACR BI-RADS Atlas, 5th edition, 2013.
"""

from typing import Any

from usvit.evaluation import DIVIDED, INCOMPLETE, KNOWN_CANCER

BIRADS = (INCOMPLETE, *DIVIDED, KNOWN_CANCER)
"""Categories that a reader can give."""
_CATEGORY = {"name": "birads", "kind": "birads", "label": "BI-RADS category"}
_COMMENT = {"name": "comment", "kind": "text", "label": "Comment", "required": False}
_DESCRIPTORS = {
    "shape": ("oval", "round", "irregular"),
    "orientation": ("parallel", "not parallel"),
    "margin": ("circumscribed", "indistinct", "angular", "microlobulated", "spiculated"),
    "echo_pattern": ("anechoic", "hyperechoic", "complex cystic and solid", "hypoechoic", "isoechoic", "heterogeneous"),
    "posterior_features": ("none", "enhancement", "shadowing", "combined"),
    "calcifications": ("none", "in a mass", "outside of a mass", "intraductal"),
}
QUESTIONS: dict[str, list[dict[str, Any]]] = {
    "reader_study": [
        _CATEGORY,
        {
            "name": "malignancy",
            "kind": "scale",
            "label": "How likely is malignancy?",
            "help": "0: certainly not malignant; 100: certainly malignant.",
        },
    ],
    "triage": [
        {"name": "verdict", "label": "Is the model right?", "choices": ["agree", "disagree", "unsure"]},
        {"name": "flag", "label": "Flag", "choices": ["discuss", "exclude"], "required": False},
        _COMMENT,
    ],
    "labelling": [
        {"name": "class", "label": "Class", "choices": ["benign", "malignant", "normal"]},
        _CATEGORY,
        *(
            {
                "name": name,
                "label": name.replace("_", " ").capitalize(),
                "choices": [*words],
                "multiple": name == "margin",
                "required": False,
            }
            for name, words in _DESCRIPTORS.items()
        ),
        {"name": "quality", "label": "Image quality", "choices": ["good", "limited", "insufficient"]},
        {"name": "exclude", "label": "Exclude this case?", "choices": ["no", "yes"]},
        _COMMENT,
    ],
}
"""Protocol -> its usual questions, as they would stand in the file of the study."""
