"""Fetch again, all of it, with requests that count as long: read, served and answered in slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch, values
from tests.rigs.waiting import wait_until
from tests.unit.broker.handlers import test_fetch
from tests.unit.broker.handlers.test_fetch import *  # noqa: F403

from tidelog.broker.fetch import delayed_fetch
from tidelog.broker.handlers import fetch
from tidelog.errors import ErrorCode
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse

MANY = 5_000


@pytest.fixture(autouse=True)
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_fetch, "_AT_ONCE", -1)
    monkeypatch.setattr(delayed_fetch, "_SLICE", 1)
    monkeypatch.setattr(fetch, "_LONG_FRAME_BYTES", 0)


def test_thousands_of_partitions_are_answered(
    monkeypatch: pytest.MonkeyPatch, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    monkeypatch.undo()
    topic = new_topic(partitions=2)
    topic.produce(batch(b"a"))
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(MANY)]
    request = FetchRequest(session_epoch=-1, max_bytes=10_000, topics=[topic.fetch_topic(13, *partitions)])
    (answered,) = client.ask(13, request, FetchResponse).responses
    assert [each.partition_index for each in answered.partitions] == list(range(MANY))
    assert values(answered.partitions[0]) == [b"a"]
    codes = {each.error_code for each in answered.partitions[2:]}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_what_is_appended_while_a_long_fetch_is_read_ends_its_wait(
    monkeypatch: pytest.MonkeyPatch, broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    """The append falls between the read of its partition and the moment in which it is watched."""
    topic = new_topic()
    begin = delayed_fetch.Fetch._begin_wait
    appended: list[bool] = []

    def begin_later(self: delayed_fetch.Fetch, max_wait_ms: int) -> None:
        begin(self, max_wait_ms)
        if not appended:
            appended.append(True)
            partition = self._services.by_name[topic.name, 0]
            partition.append(memoryview(bytearray(batch(b"late"))))

    monkeypatch.setattr(delayed_fetch.Fetch, "_begin_wait", begin_later)
    assert values(topic.fetch(offset=0, min_bytes=1, max_wait_ms=60_000)) == [b"late"]
    wait_until(lambda: test_fetch.waiters(broker, topic) == 0)
