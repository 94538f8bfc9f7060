"""Networks with the head that they were trained with, as the classifiers of a test."""

import json
from dataclasses import dataclass, fields

from usvit.data.splits import SeenImages, seen_by_weights
from usvit.errors import UsvitError
from usvit.experiments import model_record
from usvit.models import FixedNetwork, resolve_networks, run_of_weights
from usvit.records.run import TestedModel
from usvit.training import seed_everything
from usvit.upstream.config.test import HeadRule, TestConfig


@dataclass(frozen=True)
class FixedClassifier(FixedNetwork):
    """A network that is tested as it is; its name is unique."""

    heads: tuple[HeadRule | None, ...]
    """Rules by which a network with a distillation token decides; (None,) for a network with one head."""

    def row_name(self, head: HeadRule | None) -> str:
        """Return the name of a row of the tables: that of the classifier, with its head if it has two."""
        return self.name if head is None else f"{self.name} [{head}]"

    def trained_on(self) -> SeenImages:
        """Return the images that must not be tested: those that the weights were trained on, or chosen by.

        Validation images of a pre-training that kept its last step have chosen nothing, so they may be tested.
        """
        seen = seen_by_weights(self.weights)
        run = None if self.weights.metadata is None else run_of_weights(self.weights)
        return seen.of_parts("train", "upstream") if run is not None and run.kept_last_step else seen

    def record(self) -> TestedModel:
        """Return the entry of ``run.json``."""
        model = model_record(self.spec, self.n_parameters, None, self.weights, self.loaded)
        return TestedModel(**dict(model))


def resolve_classifiers(config: TestConfig) -> list[FixedClassifier]:
    """Find and build every classifier once, before anything is written.

    Raises:
        UsvitError: One does not exist, is incomplete, or has no classifier.
    """
    found: list[FixedClassifier] = []
    seed_everything(0, "model", 0)  # deterministic algorithms are set
    for choice in config.classifiers:
        vit = config.model.vit.model_dump(exclude_none=True)
        for one in resolve_networks(choice, vit=vit, image_size=config.model.image_size, **config.views.model_dump()):
            taken = sum(other.name == one.name or other.name.startswith(f"{one.name} (") for other in found)
            own = {field.name: getattr(one, field.name) for field in fields(one)}
            own["name"] = f"{one.name} ({taken + 1})" if taken else one.name
            heads = tuple(dict.fromkeys(config.head)) if one.distilled else (None,)
            found.append(FixedClassifier(**own, heads=heads))
    if config.head != TestConfig().head and all(one.heads == (None,) for one in found):
        raise UsvitError(
            f"--head {' '.join(config.head)} chooses between the two heads of a network with a distillation token, "
            "and none of the classifiers has one. Leave it out."
        )
    return found


def joint_sha256_text(classifiers: list[FixedClassifier]) -> str:
    """Return a text that changes if a classifier, its weights, its classes or its preprocessing change."""
    return json.dumps([[one.name, one.weights.sha256, one.classes, one.view.content()] for one in classifiers])
