"""Metrics of a node in the text format of Prometheus, from its status alone."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from usvit.node.records import NodeStatusRecord
from usvit.node.watching.status import DELIVERY_STATES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(status: NodeStatusRecord) -> bytes:
    """Return the metrics of a status; labels are states, kinds, processes and names of peers."""
    registry = CollectorRegistry()
    registry.register(_StatusCollector(status))
    return generate_latest(registry)


class _StatusCollector(Collector):
    def __init__(self, status: NodeStatusRecord):
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status, disk = self._status, self._status.disk
        yield _gauge("usvit_node_up", "Whether the service runs.", float(status.running))
        yield _labelled(
            "usvit_node_process_up",
            "Whether a process runs.",
            "process",
            {one.name: int(one.alive) for one in status.processes},
        )
        yield _labelled("usvit_node_instances", "Instances by state.", "state", status.instances)
        yield _labelled("usvit_node_studies", "Studies by state.", "state", status.studies)
        yield _labelled("usvit_node_results", "Results by kind.", "kind", status.results)
        yield _labelled(
            "usvit_node_commitments", "Requests for storage commitment by state.", "state", status.commitments
        )
        yield _gauge("usvit_node_missing_results", "Results that could not be made.", status.missing_results)
        yield _gauge(
            "usvit_node_oldest_study_seconds",
            "Age of the oldest study that waits to be scored.",
            status.oldest_study_seconds or 0.0,
        )
        deliveries = GaugeMetricFamily(
            "usvit_node_deliveries", "Deliveries by peer and state.", labels=("peer", "state")
        )
        oldest = GaugeMetricFamily(
            "usvit_node_oldest_delivery_seconds", "Age of the oldest result that waits for a peer.", labels=("peer",)
        )
        for one in status.deliveries:
            for state in DELIVERY_STATES:
                deliveries.add_metric((one.peer, state), getattr(one, state))
            oldest.add_metric((one.peer,), one.oldest_waiting_seconds or 0.0)
        yield deliveries
        yield oldest
        for name, value in status.counters.items():
            yield CounterMetricFamily(f"usvit_node_{name}", "Counted since the folder was made.", value=value)
        yield _gauge("usvit_node_disk_free_bytes", "Free disk of the folder.", disk.free_bytes)
        yield _gauge("usvit_node_images_bytes", "Size of the images that are kept.", disk.images_bytes)
        yield _gauge("usvit_node_results_bytes", "Size of the results that are kept.", disk.results_bytes)


def _gauge(name: str, said: str, value: float) -> Metric:
    return GaugeMetricFamily(name, said, value=value)


def _labelled(name: str, said: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, said, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
