"""Figures of requests and of the loop that are counters: none of them ever falls."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.broker.metrics import request_figures
from tidelog.broker.metrics.observed import ObservedBroker
from tidelog.broker.metrics.request_figures import LoopTicks, Rates, RequestFigures
from tidelog.broker.network.busy_time import BusyTime
from tidelog.errors import ErrorCode
from tidelog.metrics.connection_counts import RecentLatency
from tidelog.metrics.page import Page
from tidelog.metrics.request_errors import RequestErrors
from tidelog.metrics.request_times import RequestTimes
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Scene:
    """Requests that were answered, and what the page says of their errors."""

    def __init__(self) -> None:
        self.times = RequestTimes()
        self.errors = RequestErrors()
        network = SimpleNamespace(counts={}, all_connections=lambda: (), apart_busy=None)
        broker: Any = SimpleNamespace(network=network, loop_watchdog=None)
        self.figures = RequestFigures(cast(ObservedBroker, broker), self.times, self.errors)
        self.figures.ticks.start()
        self.figures.ticks.stop()

    def look_into(self, key: ApiKey, codes: Sequence[int]) -> None:
        """An answer is made that has these codes."""
        self.errors.count_answer(API_TABLE[key].name, Counter(codes))

    def send(self, key: ApiKey, *, follower: bool = False) -> None:
        """An answer is out."""
        frame = memoryview(int(key).to_bytes(2, "big") + bytes(20))
        connection: Any = SimpleNamespace(is_follower=follower)
        self.times.answered(connection, [frame], 1, None, 1.0, 1.0, 1.0)

    def told(self, request: str) -> dict[str, int]:
        """What the page has of an API, by error."""
        page = "".join(self.figures.render(Page()))
        found = re.findall(rf'errors_total{{request="{request}",error="(\w+)"}} (\d+)\n', page)
        return {error: int(count) for error, count in found}


def run(test: Callable[[Scene], None]) -> None:
    async def main() -> None:
        test(Scene())

    asyncio.run(main())


def test_codes_of_items_are_counted_and_none_does_not_fall_when_all_of_many_fail() -> None:
    def commit(scene: Scene, code: int) -> None:
        partitions = [OffsetCommitResponsePartition(partition_index=n, error_code=code) for n in range(50)]
        topics = [OffsetCommitResponseTopic(name="orders", partitions=partitions)]
        scene.errors.count_in("OffsetCommit", OffsetCommitResponse(topics=topics), 8)
        scene.send(ApiKey.OFFSET_COMMIT)

    def test(scene: Scene) -> None:
        for _ in range(20):
            commit(scene, ErrorCode.NONE)
        assert scene.told("OffsetCommit") == {"NONE": 1000}
        for _ in range(20):
            commit(scene, UNKNOWN)
        assert scene.told("OffsetCommit") == {"NONE": 1000, "UNKNOWN_TOPIC_OR_PARTITION": 1000}

    run(test)


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH])
def test_answers_that_nobody_looked_into_count_as_one_none_each(key: ApiKey) -> None:
    def test(scene: Scene) -> None:
        name = API_TABLE[key].name
        for _ in range(20):
            scene.send(key)
        assert scene.told(name) == {"NONE": 20}
        for done in range(1, 21):
            scene.look_into(key, [UNKNOWN] * 50)
            assert scene.told(name)["NONE"] == 20, "made, and not out yet"
            scene.send(key)
            assert scene.told(name) == {"NONE": 20, "UNKNOWN_TOPIC_OR_PARTITION": done * 50}
        scene.look_into(key, [0, 0, UNKNOWN])
        scene.send(key)
        scene.send(key)
        assert scene.told(name) == {"NONE": 23, "UNKNOWN_TOPIC_OR_PARTITION": 1001}

    run(test)


def test_requests_that_want_no_answer_have_no_code() -> None:
    def test(scene: Scene) -> None:
        for _ in range(20):
            scene.errors.count_unanswered("Produce")
            scene.send(ApiKey.PRODUCE)
        assert scene.told("Produce") == {"NONE": 0}
        scene.send(ApiKey.PRODUCE)
        assert scene.told("Produce") == {"NONE": 1}

    run(test)


def test_errors_of_fetches_are_told_of_consumers_and_followers_together() -> None:
    def test(scene: Scene) -> None:
        scene.send(ApiKey.FETCH)
        scene.send(ApiKey.FETCH, follower=True)
        assert scene.told("Fetch") == {"NONE": 2}
        assert scene.told("FetchConsumer") == scene.told("FetchFollower") == {}

    run(test)


def test_idle_time_does_not_fall_when_a_busy_loops_clock_runs_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, worked_s = 100.0, 10.0
    clocks = SimpleNamespace(
        monotonic=lambda: now_s,
        clock_gettime=lambda clock: worked_s,
        pthread_getcpuclockid=lambda thread: 0,
    )
    monkeypatch.setattr(request_figures, "time", clocks)
    loop: Any = None
    ticks = LoopTicks(loop)
    now_s, worked_s = 110.0, 14.0
    assert ticks.idle_ns == 6_000_000_000
    # Both are read one after the other, and one of them is slewed by NTP.
    now_s, worked_s = 120.0, 24.001
    assert ticks.idle_ns == 6_000_000_000
    now_s = 121.0
    assert ticks.idle_ns == pytest.approx(6_999_000_000)


def test_rates_are_of_the_last_minute() -> None:
    rates = Rates()
    assert rates.of("A", 0.0, (5,)) == (0.0,)
    rates.note(0.0, {"A": (5,)})
    rates.note(0.5, {"A": (500,)})
    assert rates.of("A", 10.0, (25,)) == (2.0,)
    assert rates.of("B", 10.0, (20,)) == (2.0,)
    for second in range(5, 200, 5):
        rates.note(second, {"A": (second,)})
    (rate,) = rates.of("A", 200.0, (200 + 60,))
    assert rate == pytest.approx(2.0, rel=0.1)


def test_latencies_are_of_the_last_windows() -> None:
    latency = RecentLatency()
    assert latency.read(1000.0) == (0.0, 0.0)
    latency.add(10.0, 1000.0)
    latency.add(30.0, 1029.0)
    assert latency.read(1059.0) == (20.0, 30.0)
    latency.add(50.0, 1060.0)
    assert latency.read(1061.0) == (30.0, 50.0)
    assert latency.read(1090.0) == (50.0, 50.0)
    assert latency.read(2000.0) == (0.0, 0.0)


def test_requests_that_overlap_keep_a_listener_busy_once() -> None:
    busy, peer = BusyTime(), SimpleNamespace()
    busy.answered(peer, [], 1, None, 1.0, 1.0, 1.5)
    busy.waited(peer, 4, 1.0, 1.0, 1.1, 3.0, 3.0)
    busy.waited(peer, 4, 1.0, 2.0, 2.1, 2.5, 2.5)
    busy.answered(peer, [], 1, None, 5.0, 5.0, 6.0)
    assert busy.total_s == pytest.approx(3.0)
