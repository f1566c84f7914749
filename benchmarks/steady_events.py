"""Generated events at a steady rate, from a process that costs next to nothing while it sends them.

The generator needs half a core for 20,000 events a second, which on a small machine is half of what the
pipelines have: the measure would be of both. So events are generated and laid out as Arrow columns first, by
ticks; then "ready" is printed, and with a line from the standard input sending begins. Said in the end, as
JSON: how many events were written in how many seconds, and by how many of them the latest tick was late. An
event that could not be written ends it with an error.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from datetime import UTC, datetime

import pyarrow as pa

from tidelog import Producer
from tidelog.client.producer._send_batch.table_writer import TableFuture
from tidelog_rewards.generator.traffic import Traffic, TrafficSettings

TICK_MS = 100
COLUMNS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("ms", "UTC"))])

Tick = dict[str, pa.RecordBatch]
"""The events of a tick by topic."""


def ticks(rate: int, seconds: int) -> list[Tick]:
    """What is sent in each tick."""
    traffic = Traffic(TrafficSettings(start=datetime.now(UTC), seed=11, rate=rate))
    start_ms = traffic.settings.start_ms
    return [_tick(traffic, start_ms + number * TICK_MS) for number in range(1, seconds * 1000 // TICK_MS + 1)]


def _tick(traffic: Traffic, until_ms: int) -> Tick:
    rows: dict[str, list[tuple[bytes, bytes, int]]] = {}
    for topic, key, value, timestamp_ms in traffic.until(until_ms):
        rows.setdefault(topic, []).append((key, value, timestamp_ms))
    return {
        topic: pa.RecordBatch.from_arrays(
            [
                pa.array(column, type_)
                for column, type_ in zip(zip(*some, strict=True), COLUMNS.types, strict=True)
            ],
            schema=COLUMNS,
        )
        for topic, some in rows.items()
    }


def send(bootstrap: str, told: list[Tick]) -> dict[str, float]:
    """Send each tick when its time has come.

    :raises TidelogError: events could not be written.
    """
    sent, late = 0, 0.0
    under_way: deque[TableFuture] = deque()
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 262_144}) as producer:
        began = time.perf_counter()
        for number, tick in enumerate(told):
            wait = number * TICK_MS / 1000 - (time.perf_counter() - began)
            if wait > 0:
                time.sleep(wait)
            late = max(late, -wait)
            for topic, rows in tick.items():
                under_way.append(producer.send_arrow(rows, topic))
                sent += rows.num_rows
            while under_way and under_way[0].done():
                under_way.popleft().result()
        producer.flush()
        for each in under_way:
            each.result(0)
        seconds = time.perf_counter() - began
    return {"sent": sent, "seconds": seconds, "late": late}


def main(bootstrap: str, rate: str, seconds: str) -> None:
    told = ticks(int(rate), int(seconds))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(send(bootstrap, told)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
