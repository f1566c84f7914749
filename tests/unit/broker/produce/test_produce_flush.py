"""Produce to topics with ``flush.messages``: an answer says that the records are synced."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch, values

from tidelog.errors import ErrorCode
from tidelog.storage.disk import Disk
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey

DEADLINE_S = 60.0


class Syncs:
    """Holds up, or fails, the syncs that are made in threads."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.may_go.set()
        self.fail = False

    def fsync(self, fd: int) -> None:
        if threading.current_thread().name.startswith("asyncio"):
            assert self.may_go.wait(DEADLINE_S)
            if self.fail:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(fd)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    held = Syncs()
    monkeypatch.setattr(Disk, "fsync", staticmethod(held.fsync))
    yield held
    held.may_go.set()


def wait_for_end(broker: BrokerThread, topic: RawTopic, end: int) -> None:
    while broker.call(lambda inner: inner.partitions.get(topic.name, 0).log.log_end_offset) < end:
        pass


def test_answers_and_readers_wait_for_the_sync_and_nobody_else_does(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic], syncs: Syncs
) -> None:
    topic = new_topic(flush_messages="1")
    plain = new_topic()
    syncs.may_go.clear()
    sent = [
        client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"%d" % n), acks=acks))
        for n, acks in enumerate((1, -1, 0, 1))
    ]
    wait_for_end(broker, topic, 4)
    with RawClient(broker.host, broker.port) as other:
        seen = topic.fetch(offset=0, client=other)
        assert (seen.high_watermark, values(seen)) == (0, [])
        plain.client = other
        assert plain.produce(batch(b"a")).base_offset == 0
    syncs.may_go.set()
    answered = [int.from_bytes(client.receive()[:4], "big") for _ in range(3)]
    assert answered == [sent[0], sent[1], sent[3]]
    assert values(topic.fetch(offset=0)) == [b"0", b"1", b"2", b"3"]


def test_a_client_that_goes_while_its_records_are_synced_leaves_nothing_behind(
    broker: BrokerThread, new_topic: Callable[..., RawTopic], syncs: Syncs
) -> None:
    topic = new_topic(flush_messages="1")
    syncs.may_go.clear()
    with RawClient(broker.host, broker.port) as other:
        other.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"a")))
        wait_for_end(broker, topic, 1)
    syncs.may_go.set()
    assert topic.produce(batch(b"b")).base_offset == 1
    assert values(topic.fetch(offset=0)) == [b"a", b"b"]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_sync_that_fails_is_a_storage_error(tmp_path: Path, acks: int, syncs: Syncs) -> None:
    dirs = {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    with BrokerThread(tmp_path, options=dirs) as broker, RawClient(broker.host, broker.port) as client:
        topic = RawTopic(client, "synced", flush_messages="1")
        syncs.fail = True
        answer = topic.produce(batch(b"a"), acks=acks)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        syncs.fail = False
        again = topic.produce(batch(b"a"), acks=acks)
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
