"""Content of ``usvit models info`` for one network, with its cost counted on the spot."""

import timm

from usvit.models.complexity import count, licence
from usvit.models.spec import PROTOCOLS, ModelSpec, Pretrained
from usvit.models.weights import pin_of, weight_sources
from usvit.models.zoo.common import SOURCES
from usvit.records import ModelsInfoRecord
from usvit.records.models_info import FoundationFacts, HubWeights, PaperFiguresRecord, WeightSourceRecord, ZooPaper


def describe_model(spec: ModelSpec, image_size: int | None = None, n_classes: int = 1000) -> ModelsInfoRecord:
    """Describe a network: its cost, its weights with their licences, and the figures that its papers print.

    Args:
        spec: Specification of the network.
        image_size: Side of the square image in pixels; None for the paper's.
        n_classes: Number of outputs of the head.

    Returns:
        The content of ``usvit models info --json`` (docs/reference/models-info.schema.json).

    Raises:
        UsvitError: If the network does not support this size.
    """
    image_size = image_size or spec.image_size
    counts = count(spec, image_size, n_classes)
    return ModelsInfoRecord(
        name=spec.name,
        family=spec.family,
        source=spec.source,
        implementation=spec.implementation,
        architecture=spec.architecture,
        params=counts.params,
        macs=counts.macs,
        input_size=image_size,
        classes=n_classes,
        shape=spec.shape,
        changed=dict(spec.changed),
        weights=[
            _weights(upstream, hub, recommended=number == 0)
            for number, (upstream, hub) in enumerate(spec.weights.items())
        ],
        sources=[WeightSourceRecord(choice=one.choice, here=one.here) for one in weight_sources(spec)],
        paper=ZooPaper(
            references=[SOURCES[name] for name in spec.source.split(", ") if name in SOURCES],
            figures=[
                PaperFiguresRecord(
                    table=printed.table,
                    params_millions=printed.params,
                    macs_billions=printed.macs,
                    input_size=printed.image_size,
                    images_per_second=dict(printed.images_per_second),
                    note=printed.note,
                )
                for printed in spec.paper
            ],
            protocols={key: PROTOCOLS[key] for printed in spec.paper for key in printed.images_per_second},
        ),
    )


def _weights(upstream: str, hub: Pretrained, recommended: bool) -> HubWeights:
    config, pin = (timm.get_pretrained_cfg(hub.timm), pin_of(f"timm/{hub.timm}")) if hub.timm else (None, None)
    entry = hub.foundation
    known = config.input_size[-1] if config else None
    weights = HubWeights(
        upstream=upstream,
        hub=f"timm/{hub.timm}" if hub.timm else None,
        by=hub.by,
        license=entry.license if entry else licence(str(hub.timm)),
        input_size=entry.image_size if entry else known,
        recommended=recommended,
        revision=pin.revision if pin else None,
        sha256=pin.sha256 if pin else None,
        package=hub.package,
    )
    if entry is None:
        return weights
    facts = FoundationFacts.model_validate(entry.model_dump(mode="json", exclude={"name", "network"}))
    return weights.model_copy(update={"foundation": facts})
