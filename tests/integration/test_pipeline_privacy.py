"""No phone number is in the clear in what the pipelines write: topics, lake, tables, files of theirs."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline_traffic import read_all, send

from tidelog.spark.pipelines import registry
from tidelog.spark.settings import PipelineSettings
from tidelog.testing import broker
from tidelog_rewards import events
from tidelog_rewards.generator import Traffic, TrafficSettings
from tidelog_rewards.generator.delivery import SIMULATED_TIME, deliver, to_broker
from tidelog_rewards.generator.truth import truth_file
from tidelog_rewards.phones.phone_keys import FILE_NAME, read_keys
from tidelog_rewards.phones.phone_tokens import PhoneTokens

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

START = datetime(2026, 1, 5, tzinfo=UTC)
NATIONAL_DIGITS = 11
BROKEN = b'{"event_id": "e", "phone": "138 1234 5678", "text": "call +8613812345679 or 13812345670"'
_PHONES = re.compile(rb'phone": ?"([^"]+)"')


@pytest.fixture
def own_bootstrap() -> Iterator[str]:
    with broker() as running:
        yield running.bootstrap_servers


def generate(bootstrap: str, truth: Path) -> None:
    with (
        truth_file(truth) as known,
        to_broker({"bootstrap.servers": bootstrap}, partitions=2, topic_configs=SIMULATED_TIME) as target,
    ):
        traffic = Traffic(TrafficSettings(START, seed=31, rate=5.0, fraud=4.0), known)
        deliver(traffic, target, paced=False, seconds=1200)
    send(bootstrap, [(kind.topic, b"13812345678", BROKEN) for kind in events.KINDS])


def numbers_sent(bootstrap: str) -> set[bytes]:
    """All numbers of the events, as they were written and without their country."""
    found = {b"13812345678", b"13812345679", b"13812345670", b"138 1234 5678"}
    for kind in (events.LOGIN, events.MESSAGE_VERIFICATION, events.INVITE):
        for record in read_all(bootstrap, kind.topic):
            for phone in _PHONES.findall(record.value or b""):
                digits = re.sub(rb"[^0-9]", b"", phone)
                if len(digits) >= NATIONAL_DIGITS:
                    found |= {phone, digits[-NATIONAL_DIGITS:]}
    return found


def written(bootstrap: str, directory: Path) -> Iterator[tuple[str, bytes]]:
    """All that is left of the run, by name."""
    for topic in events.OUTPUTS:
        for record in read_all(bootstrap, topic):
            headers = b" ".join(value or b"" for _, value in record.headers)
            yield topic, b" ".join((record.key or b"", record.value or b"", headers))
    for path in sorted(directory.rglob("*")):
        if not path.is_file() or "checkpoints" in path.parts:
            continue
        if path.suffix == ".parquet":
            yield path.name, repr(pq.read_table(path, partitioning=None).to_pylist()).encode()
        elif path.suffix == ".sqlite":
            with sqlite3.connect(path) as connection:
                yield path.name, "\n".join(connection.iterdump()).encode()
        else:
            yield path.name, path.read_bytes()


def test_numbers_are_tokens_in_everything_that_is_written(
    spark: SparkSession, own_bootstrap: str, tmp_path: Path
) -> None:
    generate(own_bootstrap, tmp_path / "truth.jsonl")
    settings = PipelineSettings(own_bootstrap, tmp_path / "pipelines", "available-now")
    for name in registry.installed():
        assert registry.load(name).start(spark, settings).awaitTermination(240)

    numbers = numbers_sent(own_bootstrap)
    assert len(numbers) > 200
    wanted = re.compile(b"|".join(map(re.escape, sorted(numbers))))
    seen: set[str] = set()
    for name, text in written(own_bootstrap, settings.directory):
        seen.add(name)
        found = wanted.search(text)
        assert found is None, f"{found[0]!r} is in {name}"
    topics = {events.DEAD_LETTERS, events.USER_REGIONS, events.USER_EARNINGS, events.INVITE_FRAUD_ALERTS}
    assert topics | {events.INCIDENTS} <= seen
    assert any(name.endswith(".parquet") for name in seen)
    assert "tables.sqlite" in seen

    tokens = PhoneTokens(read_keys(settings.directory / FILE_NAME), "CN")
    logins = [json.loads(record.value) for record in read_all(own_bootstrap, events.USER_REGIONS)]
    phones = {re.search(rb'"phone": ?"([^"]+)"', record.value) for record in valid_logins(own_bootstrap)}
    sent = {tokens.of(found[1].decode(), 0) for found in phones if found is not None}
    assert {event["phone"] for event in logins if event["kind"] == "login"} == sent


def valid_logins(bootstrap: str) -> list[Any]:
    """Logins that are whole."""
    found = []
    for record in read_all(bootstrap, events.LOGIN.topic):
        try:
            event = json.loads(record.value or b"")
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("phone"), str):
            found.append(record)
    return found
