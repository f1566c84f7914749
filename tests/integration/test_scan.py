"""``tidelog.scan`` against a real broker, read by pyarrow, DuckDB, polars and pandas.

What is pushed down is proven by what was fetched and decoded, which ``TopicScan.statistics`` counts.
"""

from __future__ import annotations

import datetime
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from tests.rigs.waiting import wait_until

import tidelog
from tidelog import ConfigError, ErrorCode, KafkaError, Producer
from tidelog.client.scanning._scan_source import ScanStatistics
from tidelog.client.scanning._topic_scan import TopicScan
from tidelog.ids import TopicPartition
from tidelog.testing import LocalBroker
from tidelog.testing import broker as run_broker

COUNT = 3000
START_MS = 1_700_000_000_000
VALUE = b"v" * 600


def at(number: int) -> datetime.datetime:
    """The time of record ``number``."""
    return datetime.datetime.fromtimestamp((START_MS + number * 1000) / 1000, datetime.UTC)


def at_scalar(number: int) -> pa.Scalar:
    return pa.scalar(START_MS + number * 1000, pa.timestamp("ms", "UTC"))


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with run_broker() as running:
        yield running


@pytest.fixture(scope="module")
def filled(broker: LocalBroker) -> str:
    """A topic of three partitions, a record a second, in many batches."""
    broker.create_topic("orders", partitions=3)
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=8000) as producer:
        producer.send_batch(
            "orders",
            (
                {
                    "key": b"k%d" % number,
                    "value": VALUE,
                    "partition": number % 3,
                    "timestamp_ms": START_MS + number * 1000,
                    "headers": [("n", b"%d" % number), ("n", None)],
                }
                for number in range(COUNT)
            ),
        ).raise_for_failures()
    return "orders"


@pytest.fixture
def orders(broker: LocalBroker, filled: str) -> TopicScan:
    return tidelog.scan(filled, bootstrap_servers=broker.bootstrap_servers)


def costs(scan: TopicScan, read: Callable[[], Any]) -> tuple[Any, ScanStatistics]:
    """What ``read`` returns, and what it took."""
    before = scan.statistics
    found = read()
    gc.collect()  # readers that stop early end with their generator
    after = scan.statistics
    return found, ScanStatistics(
        *(
            getattr(after, name) - getattr(before, name)
            for name in ("passes", "fetched_bytes", "decoded_records", "decoded_bytes", "returned_rows")
        )
    )


def sql(orders: TopicScan, query: str) -> list[Any]:
    """What DuckDB finds in the table ``orders``."""
    return duckdb.sql(query).fetchall()


ALL_BYTES = COUNT * len(VALUE)

# Every reader sees the same table


def test_a_table_has_every_part_of_every_record_in_order(orders: TopicScan) -> None:
    rows = orders.to_table().to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (partition, offset) for partition in range(3) for offset in range(COUNT // 3)
    ]
    first = rows[0]
    assert first["topic"] == "orders"
    assert (first["key"], first["value"], first["timestamp"]) == (b"k0", VALUE, at(0))
    assert first["headers"] == [{"key": "n", "value": b"0"}, {"key": "n", "value": None}]
    assert first["timestamp_type"] == 0


def test_every_pass_begins_anew_and_reads_the_same(orders: TopicScan) -> None:
    columns = ["partition", "offset", "key"]
    first = orders.to_table(columns=columns)
    assert orders.to_table(columns=columns).equals(first)
    assert (
        pa.Table.from_batches(orders.to_batches(columns=columns))
        .combine_chunks()
        .equals(first.combine_chunks())
    )
    assert orders.to_reader().read_all().num_rows == COUNT
    assert pa.table(orders).num_rows == COUNT
    assert orders.to_pandas(columns=["offset"]).shape == (COUNT, 1)
    assert pl.DataFrame(orders).height == COUNT
    assert duckdb.sql("SELECT count(*), count(DISTINCT key) FROM orders").fetchall() == [(COUNT, COUNT)]
    assert orders.to_polars().select(pl.len()).collect().item() == COUNT
    assert orders.take([0, COUNT - 1])["key"].to_pylist() == [b"k0", b"k%d" % (COUNT - 1)]


def test_two_threads_may_read_the_same_scan(orders: TopicScan) -> None:
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(orders.count_rows())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [COUNT] * 3


def test_the_stream_protocol_reads_only_the_columns_requested(orders: TopicScan) -> None:
    schema = pa.schema([("offset", pa.int64())])
    table, cost = costs(orders, lambda: pa.RecordBatchReader.from_stream(orders, schema=schema).read_all())
    assert table.column_names == ["offset"]
    assert (cost.decoded_records, cost.decoded_bytes) == (COUNT, 0)


# What is pushed down


def test_a_projection_without_keys_and_values_copies_none(orders: TopicScan) -> None:
    for read in (
        lambda: orders.to_table(columns=["partition", "offset", "timestamp"]).num_rows,
        lambda: orders.count_rows(),
        lambda: sql(orders, 'SELECT count("offset") FROM orders')[0][0],
        lambda: orders.to_polars().select("offset").collect().height,
    ):
        rows, cost = costs(orders, read)
        assert (rows, cost.decoded_records, cost.decoded_bytes) == (COUNT, COUNT, 0)
    _, cost = costs(orders, lambda: orders.to_table(columns=["key"]))
    assert 0 < cost.decoded_bytes < COUNT * 6
    _, cost = costs(orders, lambda: orders.to_table(columns={"twice": pc.field("offset") * 2}))
    assert cost.decoded_bytes == 0


def test_a_limit_fetches_little(broker: LocalBroker, orders: TopicScan) -> None:
    limited = tidelog.scan("orders", bootstrap_servers=broker.bootstrap_servers, limit=10)
    for scan, read in (
        (orders, lambda: orders.head(10).num_rows),
        (limited, lambda: limited.to_table().num_rows),
        (limited, lambda: limited.count_rows()),
        (orders, lambda: orders.to_polars().head(10).collect().height),
    ):
        rows, cost = costs(scan, read)
        assert rows == 10
        assert cost.fetched_bytes < ALL_BYTES / 20
        assert cost.returned_rows == 10
    assert orders.head(0).num_rows == 0
    assert limited.filter(pc.field("offset") >= 8).to_table(columns=["offset"])["offset"].to_pylist() == [
        8,
        9,
    ]
    assert limited.head(3, filter=pc.field("offset") >= 8).num_rows == 2
    assert (
        duckdb.sql("SELECT * FROM limited").fetchall()
        == duckdb.sql("SELECT * FROM orders LIMIT 10").fetchall()
    )


FILTERS: dict[str, tuple[Any, str, Any, int]] = {
    "offset": (
        pc.field("offset") >= 990,
        '"offset" >= 990',
        pl.col("offset") >= 990,
        30,
    ),
    "partition and offset": (
        (pc.field("partition") == 1) & (pc.field("offset") < 7),
        '"partition" = 1 AND "offset" < 7',
        (pl.col("partition") == 1) & (pl.col("offset") < 7),
        7,
    ),
    "one offset": (
        pc.field("offset") == 500,
        '"offset" = 500',
        pl.col("offset") == 500,
        3,
    ),
    "timestamp": (
        pc.field("timestamp") >= at_scalar(COUNT - 30),
        f"timestamp >= TIMESTAMPTZ '{at(COUNT - 30).isoformat()}'",
        pl.col("timestamp") >= at(COUNT - 30),
        30,
    ),
    "nothing": (
        pc.field("timestamp") > at_scalar(COUNT * 2),
        f"timestamp > TIMESTAMPTZ '{at(COUNT * 2).isoformat()}'",
        pl.col("timestamp") > at(COUNT * 2),
        0,
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_by_place_or_time_fetches_little(orders: TopicScan, name: str) -> None:
    arrow, clause, frame, count = FILTERS[name]
    for read in (
        lambda: orders.to_table(filter=arrow).num_rows,
        lambda: orders.filter(arrow).count_rows(),
        lambda: len(sql(orders, f"SELECT key FROM orders WHERE {clause}")),
        lambda: orders.to_polars().filter(frame).collect().height,
        lambda: orders.to_polars().filter(frame).collect(engine="streaming").height,
    ):
        rows, cost = costs(orders, read)
        assert rows == count
        assert cost.fetched_bytes < ALL_BYTES / 5
        assert cost.returned_rows == count


def test_filters_that_cannot_be_pushed_down_are_applied(orders: TopicScan) -> None:
    wanted = pc.field("key") == b"k7"
    assert orders.to_table(columns=["offset"], filter=wanted).to_pylist() == [{"offset": 2}]
    either = wanted | ((pc.field("partition") == 2) & (pc.field("offset") >= 999))
    assert orders.to_table(filter=either)["key"].to_pylist() == [b"k7", b"k2999"]
    assert duckdb.sql("SELECT \"offset\" FROM orders WHERE key = 'k7'::BLOB").fetchall() == [(2,)]
    assert orders.to_polars().filter(pl.col("key") == b"k7").collect().height == 1
    assert orders.to_polars().head(10).filter(pl.col("offset") >= 8).collect().height == 2
    assert orders.to_table(filter=pc.field("offset") + 1 == 5).num_rows == 3
    assert orders.to_table(filter=ds.field(2) == 5).num_rows == 3


def test_a_where_clause_and_a_limit_are_combined(broker: LocalBroker, filled: str) -> None:
    scan = tidelog.scan(
        filled,
        bootstrap_servers=broker.bootstrap_servers,
        columns=["key", "offset"],
        where=pc.field("partition") == 1,
        limit=2,
        batch_size=1,
    )
    assert [batch.to_pylist() for batch in scan.to_batches()] == [
        [{"key": b"k1", "offset": 0}],
        [{"key": b"k4", "offset": 1}],
    ]
    assert scan.schema.names == ["key", "offset"]


# From where to where


def bounds(broker: LocalBroker, **arguments: Any) -> dict[int, tuple[int, int]]:
    scan = tidelog.scan("orders", bootstrap_servers=broker.bootstrap_servers, **arguments)
    found = scan.snapshot()
    assert scan.count_rows() == sum(end - start for start, end in found.values())
    return found


def test_bounds_are_offsets_times_and_names_by_partition(broker: LocalBroker, filled: str) -> None:
    assert bounds(broker) == dict.fromkeys(range(3), (0, 1000))
    assert bounds(broker, start=10, end=20) == dict.fromkeys(range(3), (10, 20))
    assert bounds(broker, start="latest") == dict.fromkeys(range(3), (1000, 1000))
    assert bounds(broker, start=20, end=10) == dict.fromkeys(range(3), (20, 20))
    assert bounds(broker, start=at(3), end=at(7)) == {0: (1, 3), 1: (1, 2), 2: (1, 2)}
    assert bounds(broker, start=at(COUNT)) == dict.fromkeys(range(3), (1000, 1000))
    assert bounds(broker, start={1: 5}, end={1: at(9), 2: "earliest"}, partitions=[2, 1]) == {
        1: (5, 5),
        2: (0, 0),
    }


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"start": "first"}, "start is 'earliest', 'latest', an offset or an aware datetime"),
    ({"start": -1}, "start=-1 is not a valid offset"),
    ({"end": datetime.datetime(2026, 1, 1)}, "no time zone"),
    ({"start": {"0": 1}}, "a partition is a number from 0 on, got '0'"),
    ({"partitions": [-1]}, "partitions is a list of numbers"),
    ({"partitions": 1}, "partitions is a list of numbers from 0 on, got 1"),
    ({"columns": ["nope"]}, "has no column 'nope'"),
    ({"columns": ["key", "key"]}, "names 'key' twice"),
    ({"columns": "key"}, "columns is a list of names"),
    ({"where": "offset > 1"}, "where is a pyarrow.compute.Expression"),
    ({"where": pc.field("nope") > 1}, "does not fit the columns of a scan: No match for FieldRef.Name.nope."),
    ({"limit": -1}, "limit is a number of rows"),
    ({"batch_size": 0}, "batch_size is a number of rows"),
    ({"group_id": "g"}, "a scan is not a member of a group"),
    ({"value_deserializer": "json"}, "the column value holds bytes"),
    ({"auto_offset_reset": "earliest"}, "pass start="),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_a_scan_cannot_do_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tidelog.scan("orders", bootstrap_servers="127.0.0.1:1", **arguments)


def test_offsets_topics_and_partitions_that_do_not_exist_are_errors(broker: LocalBroker, filled: str) -> None:
    for arguments, message in (
        ({"end": 1001}, "end=1001 is not an offset of partition orders-0, which has those from 0 up to 1000"),
        ({"partitions": [3]}, "topic 'orders' has no partition 3, only 0 to 2"),
        ({"start": {2: 0}, "partitions": [0]}, "start names partition 2, which is not one of those scanned"),
    ):
        with pytest.raises(tidelog.TidelogError, match=message):
            bounds(broker, **arguments)
    with pytest.raises(KafkaError, match="topic 'nope' does not exist"):
        tidelog.scan("nope", bootstrap_servers=broker.bootstrap_servers).to_table()
    with pytest.raises(ConfigError, match="has no column 'nope'"):
        tidelog.scan("orders", bootstrap_servers=broker.bootstrap_servers).to_table(columns=["nope"])


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, True])
def test_a_scanner_has_batches_of_at_least_a_row(broker: LocalBroker, filled: str, batch_size: Any) -> None:
    orders = tidelog.scan("orders", bootstrap_servers=broker.bootstrap_servers)
    with pytest.raises(ConfigError, match="batch_size is a number of rows from 1 on"):
        orders.to_table(batch_size=batch_size)


@pytest.mark.parametrize(
    "condition",
    [pc.field("nope") > 1, pc.field("timestamp") > datetime.datetime(2026, 1, 1)],
    ids=str,
)
def test_a_filter_that_does_not_fit_the_columns_is_refused_at_once(condition: Any) -> None:
    orders = tidelog.scan("orders", bootstrap_servers="127.0.0.1:1")
    for read in (orders.filter, lambda each: orders.scanner(filter=each)):
        with pytest.raises(ConfigError, match="does not fit the columns of a scan"):
            read(condition)


# A log that changes and has gaps


def write(broker: LocalBroker, topic: str, count: int, **options: Any) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
        producer.send_batch(topic, [(None, b"%d" % number) for number in range(count)]).raise_for_failures()


def values(scan: TopicScan) -> list[bytes]:
    found: list[bytes] = scan.to_table(columns=["value"])["value"].to_pylist()
    return found


def test_the_end_is_fixed_by_the_first_pass(broker: LocalBroker) -> None:
    broker.create_topic("growing", partitions=1)
    write(broker, "growing", 5)
    scan = tidelog.scan("growing", bootstrap_servers=broker.bootstrap_servers)
    reader = scan.to_reader()
    assert scan.snapshot() == {0: (0, 5)}
    write(broker, "growing", 5)
    broker.admin.create_partitions({"growing": 2})
    assert sum(batch.num_rows for batch in reader) == 5
    assert scan.count_rows() == 5
    assert tidelog.scan("growing", bootstrap_servers=broker.bootstrap_servers).count_rows() == 10


def test_empty_partitions_and_topics_have_no_rows(broker: LocalBroker) -> None:
    broker.create_topic("empty", partitions=4)
    scan = tidelog.scan("empty", bootstrap_servers=broker.bootstrap_servers)
    assert scan.to_table().schema == scan.schema
    assert (scan.count_rows(), scan.to_polars().collect().height) == (0, 0)
    assert duckdb.sql("SELECT count(*) FROM scan").fetchall() == [(0,)]


def test_transactions_are_read_by_the_isolation_level(broker: LocalBroker) -> None:
    topic = "transactions"
    broker.create_topic(topic, partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="scan") as producer:
        producer.init_transactions()
        for number, commits in enumerate([True, False, True, False]):
            producer.begin_transaction()
            producer.send_batch(topic, [(None, b"%d" % number)] * 2).raise_for_failures()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.begin_transaction()
        producer.send_batch(topic, [(None, b"open")]).raise_for_failures()
        servers = broker.bootstrap_servers
        committed = tidelog.scan(topic, bootstrap_servers=servers, isolation_level="read_committed")
        assert values(committed) == [b"0", b"0", b"2", b"2"]
        assert committed.snapshot() == {0: (0, 12)}
        assert committed.count_rows(filter=pc.field("offset") >= 4) == 2
        everything = tidelog.scan(topic, bootstrap_servers=servers)
        assert values(everything) == [b"0", b"0", b"1", b"1", b"2", b"2", b"3", b"3", b"open"]
        producer.abort_transaction()


def test_records_that_are_gone_since_the_snapshot_are_an_error(broker: LocalBroker) -> None:
    broker.create_topic("retained", partitions=1)
    write(broker, "retained", 10)
    scan = tidelog.scan("retained", bootstrap_servers=broker.bootstrap_servers)
    assert scan.snapshot() == {0: (0, 10)}
    broker.admin.delete_records({TopicPartition("retained", 0): 4})
    with pytest.raises(
        KafkaError, match="4 offsets of retained-0, from 0 on, are gone: the log begins at 4"
    ) as lost:
        scan.to_table()
    assert lost.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    again = tidelog.scan("retained", bootstrap_servers=broker.bootstrap_servers)
    assert again.snapshot() == {0: (4, 10)}
    assert again.count_rows() == 6
    with pytest.raises(KafkaError, match="start=0 is not an offset of partition retained-0"):
        tidelog.scan("retained", bootstrap_servers=broker.bootstrap_servers, start=0).to_table()


def test_a_topic_that_is_deleted_since_the_snapshot_is_an_error(broker: LocalBroker) -> None:
    broker.create_topic("deleted", partitions=1)
    write(broker, "deleted", 10)
    scan = tidelog.scan("deleted", bootstrap_servers=broker.bootstrap_servers)
    assert scan.count_rows() == 10
    broker.admin.delete_topics(["deleted"])
    with pytest.raises(KafkaError, match="10 offsets of deleted-0, from 0 on, are gone"):
        scan.count_rows()


def test_a_broker_that_restarts_during_a_scan_is_waited_for() -> None:
    with run_broker() as own:
        own.create_topic("t", partitions=1)
        with Producer(bootstrap_servers=own.bootstrap_servers, batch_size=8000) as producer:
            producer.send_batch("t", [(None, VALUE)] * 20_000).raise_for_failures()
        scan = tidelog.scan("t", bootstrap_servers=own.bootstrap_servers, fetch_max_bytes=200_000)
        batches = scan.to_batches(columns=["offset"])
        rows = next(batches).num_rows
        own.restart()
        rows += sum(batch.num_rows for batch in batches)
        assert rows == 20_000


def test_a_compacted_topic_is_read_over_its_gaps() -> None:
    cleaning = {"log.cleaner.backoff.ms": 50, "log.initial.task.delay.ms": 0}
    configs = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    with run_broker(options=cleaning) as own:
        own.create_topic("compacted", partitions=1, configs=configs)
        with Producer(bootstrap_servers=own.bootstrap_servers, batch_size=8000) as producer:
            records = [(b"%d" % (number % 5), b"%d" % number + bytes(1000)) for number in range(2500)]
            producer.send_batch("compacted", records).raise_for_failures()
        scan = tidelog.scan("compacted", bootstrap_servers=own.bootstrap_servers)
        wait_until(lambda: scan.count_rows() < 1000)
        found = scan.to_table(columns=["offset", "value"]).to_pylist()
        assert all(row["value"].startswith(b"%d\0" % row["offset"]) for row in found)
        assert found[-1]["offset"] == 2499
        assert scan.snapshot() == {0: (0, 2500)}
        in_a_gap = (pc.field("offset") >= 100) & (pc.field("offset") < 105)
        assert scan.count_rows(filter=in_a_gap) == 0
        assert tidelog.scan("compacted", bootstrap_servers=own.bootstrap_servers, end=105).count_rows() == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_topics_are_read(broker: LocalBroker, codec: str) -> None:
    topic = f"compressed-{codec}"
    broker.create_topic(topic, partitions=1)
    write(broker, topic, 500, compression_type=codec)
    scan = tidelog.scan(topic, bootstrap_servers=broker.bootstrap_servers)
    assert values(scan) == [b"%d" % number for number in range(500)]


# The classes


def test_no_method_of_arrow_s_own_datasets_is_left(orders: TopicScan) -> None:
    """One that reached Arrow's C++ library would end the process: there is no dataset of it behind a scan."""
    for base, own in ((ds.Dataset, TopicScan), (ds.Scanner, type(orders.scanner()))):
        public = {name for name in vars(base) if not name.startswith("_")}
        constructors = {"from_dataset", "from_fragment", "from_batches"}
        assert public - constructors <= vars(own).keys()
    for call in (
        lambda: orders.partition_expression,
        orders.get_fragments,
        lambda: orders.replace_schema(None),
        lambda: orders.join(orders, "key"),
        lambda: orders.sort_by("key"),
        lambda: orders.join_asof(orders, "offset", "key", 1),
        orders.scanner().scan_batches,
    ):
        with pytest.raises(NotImplementedError, match="read it into a table first"):
            call()
    assert repr(orders) == "<scan of topic 'orders' from earliest to latest>"
    assert orders.scanner().dataset_schema == orders.schema
    with pytest.raises(TypeError, match="cannot be pickled"):
        orders.__reduce__()


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_tidelog_loads_no_arrow() -> None:
    code = "import sys, tidelog; tidelog.scan; print('pyarrow' in sys.modules)"
    assert run(code) == "False"


def test_without_pyarrow_the_error_names_the_remedy() -> None:
    code = (
        "import sys, tidelog; sys.modules['pyarrow'] = None\n"
        "try: tidelog.scan('t', bootstrap_servers='127.0.0.1:1')\n"
        "except ImportError as error: print(error)"
    )
    assert "pip install 'tidelog[arrow]'" in run(code)


MEMORY = """
import re, sys
from pathlib import Path
import tidelog, pyarrow, pyarrow.dataset

def peak_kb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

scan = tidelog.scan("large", bootstrap_servers=sys.argv[1], fetch_max_bytes=2_000_000)
scan.head(1)
before = peak_kb()
rows = sum(batch.num_rows for batch in scan.to_reader())
print(rows, (peak_kb() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from /proc")
def test_a_topic_larger_than_memory_allows_is_read_in_bounded_memory(broker: LocalBroker) -> None:
    broker.create_topic("large", partitions=3)
    count, value = 80_000, b"x" * 1000
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=200_000) as producer:
        producer.send_batch("large", pa.table({"value": [value] * count})).raise_for_failures()
    rows, grown_mb = map(int, run(MEMORY, broker.bootstrap_servers).split())
    assert rows == count
    assert grown_mb < 40  # of 80 MB
