"""Data cards as Croissant 1.0 (MLCommons; Akhtar et al. 2024), the JSON-LD description of data sets for search engines.

https://docs.mlcommons.org/croissant/docs/croissant-spec.html
"""

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from usvit.data.datasets.cards import DataCard
from usvit.plain_data import Json

_CR = "http://mlcommons.org/croissant/"
_CONTEXT: Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": _CR,
    "dct": "http://purl.org/dc/terms/",
    "citeAs": "cr:citeAs",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "field": "cr:field",
    "key": "cr:key",
    "md5": "cr:md5",
    "recordSet": "cr:recordSet",
}


def croissant(card: DataCard, prose: str = "") -> Json:
    """Return a card as Croissant: its facts, the files that may be downloaded, and its classes as records.

    A licence that is unclear stays out, and so do files without a direct address: the card says how to get them.

    Args:
        card: The card.
        prose: Its text (``read_prose``); it becomes the description.

    Example:
        >>> from usvit.data.datasets import load_card
        >>> croissant(load_card("busi"))["recordSet"][0]["data"][1]
        {'classes/name': 'malignant', 'classes/images': 210}
    """
    link = next((word.strip("(),;") for word in card.host.split() if word.startswith("https://")), None)
    content: Json = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": f"{_CR}1.0",
        "name": card.name,
        "alternateName": card.pretty_name,
        "description": prose.strip() or card.pretty_name,
        "citeAs": card.citation,
        "keywords": ["breast ultrasound", *card.classes],
        **({"url": link} if link else {}),
        **({"license": f"https://spdx.org/licenses/{card.license}"} if card.license != "unclear" else {}),
        "usageInfo": card.how_to_get,
    }
    if card.fetch is not None and card.fetch.files:
        content["distribution"] = [
            {
                "@type": "cr:FileObject",
                "@id": PurePosixPath(urlsplit(file.url).path).name,
                "name": PurePosixPath(urlsplit(file.url).path).name,
                "contentUrl": file.url,
                "encodingFormat": "application/octet-stream",
                **{kind: one for kind, one in (("sha256", file.sha256), ("md5", file.md5)) if one},
            }
            for file in card.fetch.files
        ]
    if card.classes:
        content["recordSet"] = [_classes(card)]
    return content


def _classes(card: DataCard) -> Json:
    """Return the classes in the order of the outputs, each with its number of images where it is fixed."""
    fixed = all(n is not None for n in card.classes.values())
    kinds = {"name": "sc:Text"} | ({"images": "sc:Integer"} if fixed else {})
    return {
        "@type": "cr:RecordSet",
        "@id": "classes",
        "name": "classes",
        "description": f"Classes of each {card.label_level}; the positive one is {card.positive_class}.",
        "dataType": "sc:Enumeration",
        "key": {"@id": "classes/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"classes/{name}", "name": name, "dataType": kind}
            for name, kind in kinds.items()
        ],
        "data": [{"classes/name": name} | ({"classes/images": n} if fixed else {}) for name, n in card.classes.items()],
    }
