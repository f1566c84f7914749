"""Whether requests cost more on a larger log: the same appends and fetches on 10 MB, 10 GB and 1 TB.

The logs consist of valid batches whose records are holes in the file. Fetches read random offsets. The 1 TB
log has a thousand segments with complete indexes, but only about 80,000 batches are on disk, and fetches read
those.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from pathlib import Path

from foreign.broker_process import BrokerProcess

from benchmarks import big_log, pipeline, request_cost, wire
from benchmarks.contestants import create_topic, make, scratch
from benchmarks.figures import Figures

NAME = "log size"
SIZES = {"10 MB": 10_000_000, "10 GB": 10_000_000_000, "1 TB": 1_000_000_000_000}
CONNECTIONS, IN_FLIGHT = 4, 16
TURNS = 5  # small and large by turns, so that what else the machine does falls on both


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    scale = 1 if quick else 4
    with scratch(root) as directory:
        broker = make(contestant, directory)
        try:
            broker.start()
            topics = {name: create_topic(broker, name.replace(" ", "-")) for name in SIZES}
            broker.stop()
            offsets = {
                name: big_log.write(broker.data_dir / f"{name.replace(' ', '-')}-0", size)
                for name, size in SIZES.items()
            }
            broker.start()
            request_cost.warm_up(broker)
            for _ in range(TURNS):
                for name, fetchable in offsets.items():
                    _fetches(broker, figures, name, topics[name], fetchable, 500 * scale)
                    _appends(broker, figures, name, topics[name], 2000 * scale)
        finally:
            broker.kill()
    for kind in ("append of 100 B", "fetch of 64 KB"):
        costs = {
            name: statistics.median(figure.values[contestant][-TURNS:])
            for figure in figures
            for name in SIZES
            if figure.name == f"CPU per {kind}, log of {name}"
        }
        for name in list(SIZES)[1:]:
            ratio = costs[name] / costs["10 MB"]
            figures.add(NAME, contestant, f"{kind}: cost at {name} / 10 MB", ratio, "×", "lower")


def _appends(broker: BrokerProcess, figures: Figures, name: str, topic_id: bytes, count: int) -> None:
    lanes = []
    for _ in range(CONNECTIONS):
        template = wire.batch(1, 100, producer_id=wire.new_producer_id(broker.port))
        lanes.append(wire.produce_requests(topic_id, 0, template, count))
    _run(broker, figures, f"append of 100 B, log of {name}", lanes, wire.PRODUCE_ERROR_AT)


def _fetches(
    broker: BrokerProcess, figures: Figures, name: str, topic_id: bytes, offsets: Sequence[int], count: int
) -> None:
    rng = random.Random(11)
    lanes = [
        [wire.fetch_request(topic_id, 0, rng.choice(offsets), big_log.BATCH_BYTES) for _ in range(count)]
        for _ in range(CONNECTIONS)
    ]
    _run(broker, figures, f"fetch of 64 KB, log of {name}", lanes, wire.FETCH_ERROR_AT)


def _run(broker: BrokerProcess, figures: Figures, name: str, lanes: list[list[bytes]], error_at: int) -> None:
    warm = len(lanes[0]) // 10
    pipeline.run(broker.port, [lane[:warm] for lane in lanes], IN_FLIGHT, error_at)
    before = broker.cpu_seconds()
    load = pipeline.run(broker.port, [lane[warm:] for lane in lanes], IN_FLIGHT, error_at)
    figures.add(
        NAME,
        broker.label,
        f"CPU per {name}",
        (broker.cpu_seconds() - before) / load.requests * 1e6,
        "µs",
        "lower",
    )
