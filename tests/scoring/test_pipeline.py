"""Batches are gathered while the networks compute: in order, bounded, and with the numbers of one batch at a time."""

import threading
from concurrent.futures import Future

import numpy as np
import pytest

from usvit.errors import UsvitError
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.inference import Inference
from usvit.scoring.items import Done, Failure, Frame, ItemFacts, ScoringItem
from usvit.scoring.pipeline import CHUNK, IN_FLIGHT, scored
from usvit.scoring.reading.workers import End

SECONDS = 30
"""Time limit of a wait that ends at once unless the code is wrong."""


class Networks:
    """Stands for an ensemble: the outputs of a batch are the first values of its images."""

    torch_device = type("Device", (), {"type": "cpu"})
    concepts = None

    def __init__(self, before=lambda values: None):
        self.before, self.batches, self.threads = before, [], set()

    def forward(self, pixels):
        values = pixels[:, 0, 0, 0].tolist()
        self.before(values)
        self.batches.append(values)
        self.threads.add(threading.current_thread())
        return type("Outputs", (), {"values": values, "ready": True})

    def combine(self, outputs):
        return outputs.values


class Values:
    """Stands for ``Describer``: the row of an image is its score."""

    def __init__(self, networks):
        self.ensemble, self.lesions = networks, False

    def row(self, item, facts, frame, scores, k):
        return {"score": scores[k]}

    def failure(self, item, failure):
        return {}


def messages_of(n, failed=(), seen=None):
    for seq in range(n):
        item = ScoringItem(str(seq), "")
        if seq in failed:
            yield seq, item, Failure("damaged")
        else:
            yield seq, item, ItemFacts("picture", "", 1, None, (), "", "", "", "")
            if seen is not None:
                seen.append(seq)
            yield seq, item, Frame(0, np.full((2, 2, 3), seq % 256, np.uint8), "", (), 0.5)
        yield seq, item, End()


def batches_of(networks, messages, batch_size=4):
    return scored(messages, Values(networks), batch_size=batch_size, known=lambda _: Done())


def test_batches_come_in_order_and_end_with_a_chunk():
    networks, failed = Networks(), {3, CHUNK, CHUNK + 1}
    found = list(batches_of(networks, messages_of(CHUNK + 10, failed), batch_size=40))
    assert [row["score"] for batch in found for _, _, row, _ in batch.rows] == [
        seq for seq in range(CHUNK + 10) if seq not in failed
    ]
    assert [seq for batch in found for seq, _, _ in batch.failures] == sorted(failed)
    assert [seq for batch in found for seq in batch.ended] == list(range(CHUNK + 10))
    assert [len(batch) for batch in networks.batches] == [40, CHUNK - 41, 8]
    assert len(networks.threads) == 1 and threading.current_thread() not in networks.threads


def test_images_are_gathered_while_the_networks_compute():
    second = threading.Event()

    def wait_for_the_second_batch(values):
        assert second.wait(SECONDS)

    def messages():
        for message in messages_of(8):
            if message[0] == 7:
                second.set()
            yield message

    networks = Networks(wait_for_the_second_batch)
    assert sum(len(batch.rows) for batch in batches_of(networks, messages())) == 8
    assert [len(batch) for batch in networks.batches] == [4, 4]


def test_no_more_images_are_gathered_than_the_networks_will_soon_need():
    go, seen = threading.Event(), []
    batches = batches_of(Networks(lambda values: go.wait(SECONDS)), messages_of(60, seen=seen))
    threading.Timer(0.2, go.set).start()
    next(batches)
    assert len(seen) <= (IN_FLIGHT + 1) * 4
    batches.close()


def test_an_error_of_a_network_reaches_the_caller_after_the_batches_before_it():
    def fail(values):
        if 8 in values:
            raise UsvitError("not finite")

    kept = []
    with pytest.raises(UsvitError, match="not finite"):
        for batch in batches_of(Networks(fail), messages_of(40)):
            kept += [row["score"] for _, _, row, _ in batch.rows]
    assert kept == list(range(8))


def test_a_consumer_that_stops_ends_the_reading_and_the_thread():
    networks, ended = Networks(), []

    def messages():
        try:
            yield from messages_of(60)
        finally:
            ended.append(True)

    batches = batches_of(networks, messages())
    next(batches)
    batches.close()
    (thread,) = networks.threads
    assert ended and not thread.is_alive()
    assert len(networks.batches) <= IN_FLIGHT + 2


@pytest.mark.slow
def test_batches_in_flight_have_the_scores_of_single_batches(run):
    ensemble = Ensemble.load(run, device="cpu", precision="fp32", flip=True)
    images = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), dtype=np.uint8)
    portions = [images[:4], images[4:8], images[8:]]
    with Inference(ensemble) as inference:
        running: list[Future] = [inference.start(list(portion)) for portion in portions]
        found = [ensemble.combine(outputs.result()) for outputs in running]
    for scores, portion in zip(found, portions, strict=True):
        expected = ensemble.score(portion)
        for name in ("prob", "calibrated", "spread", "ood", "unusual"):
            assert getattr(scores, name).tobytes() == getattr(expected, name).tobytes(), name
