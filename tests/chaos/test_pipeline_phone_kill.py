"""phone-region killed with -9 at arbitrary moments, Java and all: each event and each letter is there once,
and the table has the number that each user has shown last.

Tasks write the rows of users after their events, and without knowing of each other; events are late, of one
millisecond, and there twice, so that whatever a killed or a repeated task writes could turn a row back.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.pipeline_kills import KILLS, finish, kill_in_a_batch
from tests.integration.pipeline_traffic import BROKEN, read_all, send, table_rows, time_text

from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.jobs.phone_region.schema import TABLE
from tidelog_rewards.phones.phone_keys import FILE_NAME, read_keys
from tidelog_rewards.phones.phone_tokens import PhoneTokens
from tidelog_rewards.topics import ensure_topics

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

START = datetime.now(UTC) - timedelta(days=2)

Event = tuple[str, bytes, bytes]
Rank = tuple[int, str]
"""By what the newest number of a user is told: its milliseconds, and the event's id."""


class PhoneTraffic:
    """Draws logins and verifications, and keeps what each user has shown last."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._sent = 0
        self.broken = 0
        self.newest: dict[str, tuple[Rank, str]] = {}

    def fresh(self, count: int) -> list[Event]:
        self._sent += count
        return [self._event(number) for number in range(self._sent - count, self._sent)]

    def damaged(self, count: int) -> list[Event]:
        self.broken += count
        return [(events.LOGIN.topic, b"k", self._draw.choice(BROKEN)) for _ in range(count)]

    def _event(self, number: int) -> Event:
        draw = self._draw
        user, phone = f"u{draw.randrange(60)}", f"+86138{draw.randrange(10**8):08d}"
        after_ms = draw.randrange(200)
        shows = draw.random() < 0.7
        value: dict[str, Any] = {
            "event_id": f"e{number}",
            "event_time": time_text(START + timedelta(milliseconds=after_ms)),
            "user_id": user,
            "device_id": "d",
            "ip": "10.0.0.1",
            "phone": phone,
        }
        if draw.random() < 0.5:
            kind, own = events.LOGIN, {"method": "sms", "success": shows}
        else:
            result = "verified" if shows else "sent"
            kind, own = events.MESSAGE_VERIFICATION, {"purpose": "bind", "result": result}
        if shows:
            found = ((after_ms, f"e{number}"), phone)
            self.newest[user] = max(self.newest.get(user, found), found)
        return kind.topic, user.encode(), json.dumps(value | own).encode()


def test_events_letters_and_the_table_are_exact_after_kill_nine(tmp_path: Path) -> None:
    draw = random.Random(13)
    directory = tmp_path / "pipelines"
    traffic = PhoneTraffic(draw)
    with BrokerProcess(tmp_path / "broker") as broker:
        settings = PipelineSettings(broker.bootstrap, directory)
        ensure_topics(settings, partitions=2)
        done = -1
        given: Counter[str] = Counter()
        for _ in range(KILLS):
            some = traffic.fresh(2000)
            some += draw.choices(some, k=200)
            given.update(json.loads(value)["event_id"] for _, _, value in some)
            records = [*some, *traffic.damaged(20)]
            draw.shuffle(records)
            send(broker.bootstrap, records)
            done = kill_in_a_batch(settings, "phone-region", done, draw)
        finish(settings, "phone-region")

        enriched = read_all(broker.bootstrap, events.USER_REGIONS)
        written = Counter(json.loads(record.value)["event_id"] for record in enriched)
        assert written == given
        letters = [dict(letter.headers) for letter in read_all(broker.bootstrap, events.DEAD_LETTERS)]
        places = {(each["topic"], each["partition"], each["offset"]) for each in letters}
        assert len(letters) == len(places) == traffic.broken
        tokens = PhoneTokens(read_keys(directory / FILE_NAME), "CN")
        at = TABLE.names.index("event_id")
        rows = table_rows(settings.tables, TABLE.name)[TABLE.name]
        assert {row[0]: (row[at], row[1]) for row in rows} == {
            user: (event_id, tokens.all_of(phone)[0])
            for user, ((_, event_id), phone) in traffic.newest.items()
        }
