"""The detecting pipelines killed with -9 at arbitrary moments, Java and all: every change of an incident is
there once, in the history of alerts and in the topic of incidents, and the table has the newest.

What each micro-batch has to write is computed by hand from the offsets in the checkpoint, batch by batch, and
compared with the topic, record by record.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.pipeline_kills import KILLS, finish, kill_in_a_batch
from tests.integration.pipeline_traffic import read_all, send, table_rows, time_text
from tests.unit.rewards.detecting import Detecting

from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards.detection.alert_tasks import Detector
from tidelog_rewards.events import DEAD_LETTERS, INCIDENTS, INVITE, LOGIN
from tidelog_rewards.jobs.account_switch.detector import SwitchDetector
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector
from tidelog_rewards.topics import ensure_topics

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

RULES_NAME = re.compile(rb'"rules":\{[^}]*\}')
START = datetime.now(UTC) - timedelta(hours=1)


def events(kind: str, draw: random.Random, first: int, count: int) -> list[tuple[str, bytes, bytes]]:
    """Logins on few devices, or invitations among few people, and some records that are no events."""
    made = []
    for number in range(first, first + count):
        people = [f"u{draw.randrange(40)}" for _ in range(2)]
        devices = [f"d{draw.randrange(25)}" for _ in range(2)]
        event: dict[str, Any] = {
            "event_id": f"e{number}",
            "event_time": time_text(START + timedelta(seconds=number / 2)),
            "user_id": people[0],
            "device_id": devices[0],
            "ip": "10.0.0.1",
        }
        if kind == LOGIN.name:
            event |= {"phone": "+8613800000000", "method": "sms", "success": True}
        else:
            event |= {
                "invitee_id": people[1] if draw.random() < 0.3 else f"n{number}",
                "invitee_phone": f"+8613{draw.randrange(10**9):09d}",
                "invitee_device_id": devices[draw.random() < 0.5],
                "invitee_ip": f"77.{draw.randrange(9)}.1.1",
                "channel": "link",
            }
        value = b"no event" if draw.random() < 0.01 else json.dumps(event).encode()
        made.append(((LOGIN if kind == LOGIN.name else INVITE).topic, people[0].encode(), value))
    return made


def batches(checkpoint: Path, topic: str) -> list[dict[int, int]]:
    """Where each micro-batch ends, by partition."""
    files = sorted(
        (path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()), key=_number
    )
    ends = [json.loads(path.read_text().splitlines()[-1])[topic] for path in files]
    return [{int(partition): offset for partition, offset in end.items()} for end in ends]


def _number(path: Path) -> int:
    return int(path.name)


def by_hand(
    bootstrap: str, checkpoint: Path, directory: Path, detector: Detector
) -> tuple[Counter[tuple[bytes, bytes | None]], int]:
    """The alerts that the batches of a checkpoint write, and how many letters."""
    stream = Detecting(directory, detector)
    records = read_all(bootstrap, detector.kind.topic)
    begins: dict[int, int] = {}
    alerts: Counter[tuple[bytes, bytes | None]] = Counter()
    letters = 0
    for batch_id, ends in enumerate(batches(checkpoint, detector.kind.topic)):
        mine = [
            (each.topic, each.partition, each.offset, datetime.now(UTC), each.key, each.value)
            for each in records
            if begins.get(each.partition, 0) <= each.offset < ends[each.partition]
        ]
        stream.batch_id = batch_id
        alerts.update(stream.work_off(mine))
        letters += len(stream.letters)
        begins = ends
    return alerts, letters


def told(record: Any) -> tuple[bytes, bytes | None]:
    """Key and value of a record, with the rules by the name that they have by hand."""
    value = record.value
    return record.key, None if value is None else RULES_NAME.sub(
        b'"rules":{"version":"test","digest":"0"}', value
    )


@pytest.mark.parametrize("detector", [SwitchDetector(), InviteDetector()], ids=lambda each: str(each.name))
def test_alerts_are_exact_after_kill_nine(tmp_path: Path, detector: Detector) -> None:
    draw = random.Random(11)
    directory = tmp_path / "pipelines"
    with BrokerProcess(tmp_path / "broker") as broker:
        settings = PipelineSettings(broker.bootstrap, directory)
        ensure_topics(settings, partitions=2)
        done = -1
        for turn in range(KILLS):
            send(broker.bootstrap, events(detector.kind.name, draw, turn * 2000, 2000))
            done = kill_in_a_batch(settings, detector.name, done, draw)
        # The last run has another number of cores.
        finish(settings, detector.name, cores=1)
        checkpoint = settings.checkpoint(detector.name)
        expected, letters = by_hand(broker.bootstrap, checkpoint, tmp_path / "by hand", detector)
        for topic in (detector.topic, INCIDENTS):
            written = Counter(told(each) for each in read_all(broker.bootstrap, topic))
            assert written == expected
        assert len(expected) > 20
        newest = {each.key.decode(): told(each)[1] for each in read_all(broker.bootstrap, INCIDENTS)}
        rows = table_rows(directory / "tables.sqlite", "incidents")["incidents"]
        assert {row[0] for row in rows} == set(newest)
        states = {name: json.loads(value)["state"] for name, value in newest.items() if value is not None}
        assert {row[0]: row[4] for row in rows if row[0] in states} == states
        assert len(read_all(broker.bootstrap, DEAD_LETTERS)) == letters > 20
