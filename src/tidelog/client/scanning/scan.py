"""``scan``: the entry point, which refuses what a scan cannot do before pyarrow is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from tidelog.client.metadata import check_place
from tidelog.client.options import CONSUMER, ClientConfig
from tidelog.client.scanning._scan_bounds import Bound, check_batch_size, check_bound
from tidelog.client.scanning._scan_source import ScanSource
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.client.consumer.option_types import ConsumerOptions
    from tidelog.client.scanning._topic_scan import TopicScan

_REFUSED = {
    "auto.offset.reset": "pass start=",
    "enable.auto.commit": "a scan commits no offsets",
    "group.id": "a scan is not a member of a group",
    "group.instance.id": "a scan is not a member of a group",
    "interceptor.classes": "the columns hold the records as they are stored",
    "key.deserializer": "the column key holds bytes; decode it in the query",
    "value.deserializer": "the column value holds bytes; decode it in the query",
}

MAX_BATCH_ROWS = 1 << 16


def scan(
    topic: str,
    options: Mapping[str, object] | None = None,
    /,
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    partitions: Iterable[int] | None = None,
    columns: Iterable[str] | None = None,
    where: Any = None,
    limit: int | None = None,
    batch_size: int = MAX_BATCH_ROWS,
    **keywords: Unpack[ConsumerOptions[bytes, bytes]],
) -> TopicScan:
    """Return a topic as a lazy table, which pyarrow, DuckDB, polars and pandas read.

    Nothing is read until rows are requested. The first read takes a snapshot of the start and end offsets;
    every read of this object begins anew and returns the same offsets, partition by partition. Projections,
    limits and filters by partition, offset and earliest timestamp reduce what is fetched and decoded.

    Args:
        topic: The topic to read.
        options: Client options by Kafka's names; or as keywords, with underscores.
        start: "earliest", "latest", an offset, an aware ``datetime`` (the first record at or after it), or a
            mapping from partitions to these; partitions that it does not name begin at the earliest record.
        end: The same, exclusive; "latest" is the end of the log at the first read. With
            ``isolation_level="read_committed"`` it is the last stable offset.
        partitions: The partitions to read; all by default.
        columns: The columns to read, of topic, partition, offset, timestamp, timestamp_type, key, value and
            headers; all by default.
        where: A ``pyarrow.compute.Expression`` over these columns; other rows are left out.
        limit: At most so many rows.
        batch_size: At most so many rows in one record batch.
        keywords: The consumer's options: ``bootstrap_servers``, ``isolation_level``, ``fetch_max_bytes``,
            security.

    Returns:
        A ``TopicScan``, which is a ``pyarrow.dataset.Dataset``.

    Raises:
        ConfigError: An argument or option has an invalid value, or has no meaning for a scan.
        ImportError: pyarrow is not installed.

    Example::

        orders = tidelog.scan("orders", bootstrap_servers="localhost:9092")
        print(orders.to_table(columns=["key", "offset"]))
        print(duckdb.sql("SELECT count(*) FROM orders WHERE partition = 0").fetchall())
    """
    check_place(topic)
    config = ClientConfig.parse(CONSUMER, options, **keywords)
    for name in sorted(config.given):
        if name in _REFUSED:
            raise ConfigError(f"scan does not take the option {name}: {_REFUSED[name]}")
    check_bound("start", start)
    check_bound("end", end)
    numbers = None if partitions is None else tuple(sorted(set(_numbers(partitions))))
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise ConfigError(f"limit is a number of rows from 0 on, got {limit!r}")
    check_batch_size(batch_size)
    if isinstance(columns, str):
        raise ConfigError(f"columns is a list of names, got {columns!r}")
    from tidelog.records.arrow import load_pyarrow

    load_pyarrow()
    from tidelog.client.scanning._topic_scan import open_scan

    source = ScanSource(topic, config, start, end, numbers)
    return open_scan(source, columns=columns, where=where, limit=limit, batch_size=batch_size)


def _numbers(partitions: Iterable[int]) -> list[int]:
    if not isinstance(partitions, Iterable):
        raise ConfigError(f"partitions is a list of numbers from 0 on, got {partitions!r}")
    numbers = list(partitions)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ConfigError(f"partitions is a list of numbers from 0 on, got {number!r}")
    return numbers
