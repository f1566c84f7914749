"""A day of events streamed, and the same day backfilled: `python -m benchmarks day --events 10000000`.

The same seed fills the topics of two brokers with the same records. On one, all pipelines work them off in
micro-batches, as they would have over the day; on the other each is backfilled as one batch. Both are the
commands that people use. Then everything that both leave is held against each other: the newest record of
each key in topics (earnings, alerts, incidents, dead letters), the tables, and the lake.

The lake of a stream is a record of the log: an event that was sent twice may be in it twice, and a backfill
has it once (docs/pipelines/collect.md), so events are compared. The topic of phone-region
belongs to the stream alone; the table of incidents says what their topic says.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.contestants import scratch
from tidelog import Consumer
from tidelog.ids import TopicPartition
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events

EVENTS = 10_000_000
BATCH = 500_000
SECONDS_OF_A_DAY = 86_400
SHOWN = 5
TOPICS = (
    events.USER_EARNINGS,
    events.INCIDENTS,
    events.ACCOUNT_SWITCH_ALERTS,
    events.INVITE_FRAUD_ALERTS,
    events.DEAD_LETTERS,
)
TABLES = ("user_regions",)
LEDGER_TABLES = ("user_credits", "user_task_steps", "user_earnings_daily", "user_tasks", "user_earnings")
RECORD_COLUMNS = ("topic", "partition", "offset")
"""Of an event that was sent twice either record may stand for it."""

Where = Mapping[str, str]
"""The environment of commands: which broker, which directory."""


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks day", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="of the day (default: %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=BATCH, help="records of a micro-batch at most (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=7, help="of the generator (default: %(default)s)")
    parser.add_argument(
        "--data-root", type=Path, default=Path("/dev/shm"), help="where data goes (default: %(default)s)"
    )
    asked = parser.parse_args(given)
    with scratch(asked.data_root) as root:
        streamed, backfilled = root / "streamed", root / "backfilled"
        start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
        _run_of(streamed, asked, start, lambda where: _stream(where, asked.batch))
        backfilled.mkdir()
        shutil.copy(streamed / "pipelines" / "phone-keys.toml", backfilled)  # the same tokens for numbers
        _run_of(backfilled, asked, start, lambda where: _backfill(where, start))
        same = _verdict(_outputs(streamed), _outputs(backfilled))
        if not same:
            _show_keys(streamed, backfilled)
        return 0 if same else 1


def _run_of(
    directory: Path, asked: argparse.Namespace, start: datetime, work: Callable[[Where], None]
) -> None:
    with BrokerProcess(directory / "broker") as broker:
        where = {
            **os.environ,
            "TIDELOG_BOOTSTRAP": broker.bootstrap,
            "TIDELOG_PIPELINES": str(directory / "pipelines"),
        }
        (directory / "pipelines").mkdir(parents=True, exist_ok=True)
        keys = directory / "phone-keys.toml"
        if keys.exists():
            shutil.move(keys, directory / "pipelines")
        _tidelog(
            where,
            *("events", "generate", "--fast", "--quiet", "--count", str(asked.events)),
            *("--rate", str(asked.events / SECONDS_OF_A_DAY), "--seed", str(asked.seed)),
            *("--start", start.isoformat().replace("+00:00", "Z"), "--truth", str(directory / "truth.jsonl")),
        )
        work(where)
        _keep_topics(broker.bootstrap, directory / "topics.json")


def _stream(where: Where, batch: int) -> None:
    _tidelog(where, *("pipeline", "run", "all", "--once", "--max-offsets-per-trigger", str(batch)))


def _backfill(where: Where, start: datetime) -> None:
    days = [(start + timedelta(days=each)).date().isoformat() for each in (-1, 2)]
    _tidelog(where, "pipeline", "backfill", "all", "--from", days[0], "--to", days[1])


def _tidelog(where: Where, *arguments: str) -> None:
    """Run a command, and say how long it took."""
    print(f"$ tidelog {' '.join(arguments)}", flush=True)
    started_at = time.monotonic()
    subprocess.run([sys.executable, "-m", "tidelog", *arguments], env=where, check=True)
    print(f"  {time.monotonic() - started_at:,.0f} s", flush=True)


def _keep_topics(bootstrap: str, path: Path) -> None:
    path.write_text(json.dumps({topic: _newest(bootstrap, topic) for topic in TOPICS}))


def _newest(bootstrap: str, topic: str) -> dict[str, str]:
    """A hash of the newest value of each key, by key."""
    options = {
        "bootstrap.servers": bootstrap,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    found: dict[str, str] = {}
    with Consumer(options) as reader:
        partitions = [TopicPartition(topic, each.partition) for each in reader.partitions_for(topic)]
        reader.assign(partitions)
        reader.seek_to_beginning(partitions)
        ends = reader.end_offsets(partitions)
        while any(reader.position(each) < ends[each] for each in partitions):
            for record in reader.poll(1.0):
                key = (record.key or b"").decode(errors="backslashreplace")
                found[key] = hashlib.blake2b(record.value or b"", digest_size=16).hexdigest()
    return found


def _outputs(directory: Path) -> dict[str, tuple[int, str]]:
    """What a run has left: rows and a digest of each output."""
    found = {}
    for topic, newest in json.loads((directory / "topics.json").read_text()).items():
        found[f"topic {topic}"] = _digest(f"{key} {value}" for key, value in newest.items())
    pipelines = directory / "pipelines"
    for table in TABLES:
        found[f"table {table}"] = _digest(_table(pipelines / "tables.sqlite", table))
    parts = sorted((pipelines / "earnings").glob("ledger-*.sqlite"))
    for table in LEDGER_TABLES:
        found[f"ledger {table}"] = _digest(row for part in parts for row in _table(part, table))
    for table in sorted(each.parent.name for each in (pipelines / "lake").glob("*/metadata")):
        found[f"lake {table}"] = _lake_table(pipelines, table)
    return found


def _digest(rows: Iterator[str]) -> tuple[int, str]:
    """How many rows, and a digest of them in any order."""
    count, total = 0, 0
    for row in rows:
        count += 1
        total += int.from_bytes(hashlib.blake2b(row.encode(), digest_size=16).digest())
    return count, f"{total % (1 << 128):032x}"


def _table(path: Path, table: str) -> Iterator[str]:
    with sqlite3.connect(path) as connection:
        for row in connection.execute(f"SELECT * FROM {table}"):
            yield repr(row)


def _lake_table(pipelines: Path, table: str) -> tuple[int, str]:
    """Events of a table, each once: their number, and a digest of what is said of them."""
    import duckdb

    listed = subprocess.run(
        [sys.executable, "-m", "tidelog", "lake", "files", table, "--json", "--directory", str(pipelines)],
        check=True,
        capture_output=True,
        text=True,
    )
    files = [each["path"] for each in json.loads(listed.stdout)]
    with duckdb.connect() as connection:
        rows = connection.read_parquet(files, union_by_name=True)
        columns = ", ".join(f'"{name}"' for name in sorted(rows.columns) if name not in RECORD_COLUMNS)
        asked = f"SELECT count(*), sum(hash(event)) FROM (SELECT DISTINCT {columns} FROM rows) event"
        found = connection.execute(asked).fetchone()
    assert found is not None
    return int(found[0]), f"{int(found[1]) % (1 << 128):032x}"


def _verdict(streamed: dict[str, tuple[int, str]], backfilled: dict[str, tuple[int, str]]) -> bool:
    same = True
    for name in sorted(streamed.keys() | backfilled.keys()):
        one, other = streamed.get(name), backfilled.get(name)
        same &= one == other
        count = [f"{each[0]:>12,}" if each else f"{'-':>12}" for each in (one, other)]
        print(f"{name:34} {count[0]} {count[1]}  {'the same' if one == other else 'DIFFERENT'}")
    print("streamed and backfilled are the same" if same else "streamed and backfilled are NOT the same")
    return same


def _show_keys(streamed: Path, backfilled: Path) -> None:
    """Some of the keys whose newest records differ."""
    kept = [json.loads((directory / "topics.json").read_text()) for directory in (streamed, backfilled)]
    for topic in TOPICS:
        one, other = (each[topic] for each in kept)
        keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
        for key in keys[:SHOWN]:
            where = "both" if key in one and key in other else "streamed" if key in one else "backfilled"
            print(f"{topic}: {key} ({where})")
