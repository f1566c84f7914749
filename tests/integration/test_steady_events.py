"""Events at a steady rate: all that is counted was written."""

from __future__ import annotations

import pyarrow as pa
import pytest
from benchmarks import steady_events

from tidelog import Admin
from tidelog.client import NewTopic
from tidelog.errors import TidelogError
from tidelog.testing import broker


def tick(size: int) -> steady_events.Tick:
    row = {"key": b"k", "value": b"v" * size, "timestamp": 1_000}
    return {"events": pa.RecordBatch.from_pylist([row], schema=steady_events.COLUMNS)}


@pytest.mark.parametrize("sizes", [(10_000, 10), (10, 10_000)])
def test_events_that_could_not_be_written_end_it(sizes: tuple[int, int]) -> None:
    with broker() as running, Admin({"bootstrap.servers": running.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic("events", 1, 1, configs={"max.message.bytes": "1000"})])
        told = steady_events.send(running.bootstrap_servers, [tick(10), tick(10)])
        assert told["sent"] == 2
        with pytest.raises(TidelogError):
            steady_events.send(running.bootstrap_servers, [tick(size) for size in sizes])
