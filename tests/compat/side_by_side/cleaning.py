"""What compaction and retention leave behind, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.compat.side_by_side.batches import NOW, Batch, record
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import append, offsets_request, stored
from tests.compat.side_by_side.side import Side

CLEANED_WITHIN_S = 20.0
STEP_MS = 10_000
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "segment_ms": "1000",
    "min_compaction_lag_ms": "0",
    "delete_retention_ms": "86400000",
}
Content = tuple[tuple[bytes, bytes | None], ...]

HISTORY: tuple[Content, ...] = (
    ((b"a", b"1"), (b"b", b"1"), (b"c", b"1")),
    ((b"a", b"2"),),
    ((b"b", b"2"), (b"d", b"1")),
    ((b"d", None), (b"e", b"1")),
    ((b"a", b"3"), (b"a", b"4")),
)


def write(side: Side, topic: str, history: tuple[Content, ...], **fields: object) -> None:
    """Each batch in a segment of its own, and one more at the end that stays as it is."""
    sequence = 0
    for index, content in enumerate((*history, ((b"last", b"1"),))):
        body = tuple(
            record(value, key, offset_delta=i, timestamp_delta=i) for i, (key, value) in enumerate(content)
        )
        batch = Batch(body, base_timestamp=NOW + index * STEP_MS).with_(**fields)
        if batch.producer_id >= 0:
            batch = batch.with_(base_sequence=sequence)
            sequence += len(content)
        append(side, topic, batch.bytes())


def wait_for(side: Side, topic: str, done: Callable[[list[dict[str, object]]], bool]) -> object:
    """All batches, once the cleaner has got as far as ``done`` says."""
    deadline = time.monotonic() + CLEANED_WITHIN_S
    while True:
        found = stored(side, topic)
        if done(found):
            return found
        assert time.monotonic() < deadline, f"{side.name}: never cleaned: {found}"
        time.sleep(0.05)


def offsets(batches: list[dict[str, object]]) -> set[int]:
    """The offsets of the records that are left."""
    left = set()
    for each in batches:
        for text in each["records"]:  # type: ignore[attr-defined]
            left.add(int(str(each["base_offset"])) + int(str(text).split()[0]))
    return left


KEPT = {2, 4, 6, 7, 9, 10}
"""Of ``HISTORY``: c, b, d's tombstone, e, a's last, and the one at the end."""


@case({"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4})
def compaction(side: Side, codec: int) -> object:
    topic = side.topic(**COMPACTED)
    write(side, topic, HISTORY, codec=codec)
    return wait_for(side, topic, lambda batches: offsets(batches) == KEPT)


@case()
def compaction_keeps_an_idempotent_producers_last_batch(side: Side) -> object:
    """Even without records: its sequence is needed."""
    topic = side.topic(**COMPACTED)
    write(side, topic, ((((b"a", b"1"),)), ((b"a", b"2"),)), producer_id=41, producer_epoch=2)
    body = (record(b"3", b"a"),)
    append(side, topic, Batch(body, base_timestamp=NOW + 9 * STEP_MS).bytes())
    append(side, topic, Batch((record(b"x", b"x"),), base_timestamp=NOW + 10 * STEP_MS).bytes())
    return wait_for(side, topic, lambda batches: offsets(batches) == {2, 3, 4})


@case()
def compaction_with_append_time(side: Side) -> object:
    """Offsets alone: segments roll by the time of day here, so that nothing rolls by timestamps."""
    topic = side.topic(**{**COMPACTED, "message_timestamp_type": "LogAppendTime", "segment_ms": "1"})
    for content in (*HISTORY, ((b"last", b"1"),)):
        body = tuple(record(value, key, offset_delta=i) for i, (key, value) in enumerate(content))
        append(side, topic, Batch(body).bytes())
        time.sleep(0.005)
    wait_for(side, topic, lambda batches: offsets(batches) == KEPT)
    return None


@case()
def tombstones_go_in_time(side: Side) -> object:
    """With the first cleaning after their horizon, which needs something new to clean."""
    topic = side.topic(**{**COMPACTED, "delete_retention_ms": "1"})
    write(side, topic, HISTORY)
    # A cleaner that was there while it was written may have come twice, and the tombstone be gone.
    wait_for(side, topic, lambda batches: offsets(batches) in (KEPT, KEPT - {6}))
    for index, key in enumerate((b"f", b"g")):
        body = (record(b"1", key),)
        append(side, topic, Batch(body, base_timestamp=NOW + (20 + index) * STEP_MS).bytes())
    return wait_for(side, topic, lambda batches: offsets(batches) == KEPT - {6} | {11, 12})


@case()
def compaction_lag_spares_young_records(side: Side) -> object:
    topic = side.topic(**{**COMPACTED, "min_compaction_lag_ms": str(10**13)})
    write(side, topic, HISTORY)
    return stored(side, topic)


@case()
def retention_by_time(side: Side) -> object:
    """All segments are too old, the last as well; an empty one takes their place."""
    topic = side.topic(retention_ms="1000", segment_ms="1000", file_delete_delay_ms="0")
    write(side, topic, HISTORY)
    wait_for(side, topic, lambda batches: not batches)
    return [side.ask(5, offsets_request(topic, timestamp)) for timestamp in (-2, -1)]


@case()
def retention_by_size(side: Side) -> object:
    """Whole segments go while what is left is still as large as the limit."""
    topic = side.topic(retention_bytes="200", segment_ms="1000")
    write(side, topic, HISTORY)
    return wait_for(side, topic, lambda batches: offsets(batches) == {6, 7, 8, 9, 10})


@case()
def retention_and_compaction(side: Side) -> object:
    topic = side.topic(**{**COMPACTED, "cleanup_policy": "compact,delete", "retention_ms": "1000"})
    write(side, topic, HISTORY)
    wait_for(side, topic, lambda batches: not batches)
    return [side.ask(5, offsets_request(topic, timestamp)) for timestamp in (-2, -1)]
