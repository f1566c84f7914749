"""kill -9 while quotas hold clients back: nothing is lost, the quotas hold afterwards, and clients go on.

A throttled client has been answered and pauses, and its broker does not read from it: when the broker dies in
the middle of that, the pause dies with it, and the quota, which is in the broker's store, does not. The
clients are librdkafka's, which says each time when it was told to pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from tests.chaos.amount import times
from tests.rigs.delivered import value_of

from tidelog import Admin, NewTopic
from tidelog.client.admin.quotas import QuotaAlteration
from tidelog.testing.broker_process import BrokerProcess

KILLS = times(1, 6)
BYTES_PER_SECOND = 150_000
VALUE_BYTES = 2000
# As much as a client may have ahead of its quota, so that a sample is over soon.
WINDOWS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
WAIT_S = 60.0
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    # That its broker is away is what it would log.
    "log_level": 0,
}


class Pauses:
    """How often a client was told to pause."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: object) -> None:
        self.count += 1


class Load:
    """An idempotent producer of numbered values, a few under way at once."""

    def __init__(self, bootstrap: str) -> None:
        self.pauses = Pauses()
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 10,
                "message.timeout.ms": 120_000,
                "throttle_cb": self.pauses,
                **QUICK,
            }
        )

    def send_until(self, what: str, is_over: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not is_over():
            assert time.monotonic() < end_s, what
            if len(self._producer) < 40:
                value = b"%d " % self._sent
                self._producer.produce(
                    "numbers", value.ljust(VALUE_BYTES, b"x"), partition=0, on_delivery=self._report
                )
                self._sent += 1
            self._producer.poll(0.001)

    def has_paused_since(self, count: int) -> bool:
        return self.pauses.count > count

    def finish(self) -> None:
        assert self._producer.flush(WAIT_S) == 0
        assert not self.failures

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged.append(number_of(message))


def number_of(message: Message) -> int:
    return int(value_of(message).split(b" ")[0])


def set_quotas(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        for made in admin.create_topics([NewTopic("numbers", 1)]):
            made.raise_for_error()
        rates = {"producer_byte_rate": BYTES_PER_SECOND, "consumer_byte_rate": BYTES_PER_SECOND}
        for result in admin.alter_client_quotas([QuotaAlteration({"client-id": None}, rates)]):
            assert result.error is None


def read(broker: BrokerProcess, wanted: int) -> tuple[list[int], int]:
    """The first ``wanted`` values, while the broker is killed at every pause; and how often that was."""
    pauses = Pauses()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "message.max.bytes": 50_000,
            "fetch.max.bytes": 50_000,
            "throttle_cb": pauses,
            **QUICK,
        }
    )
    consumer.assign([TopicPartition("numbers", 0, OFFSET_BEGINNING)])
    values: list[int] = []
    kills = seen = 0
    end_s = time.monotonic() + 2 * WAIT_S
    try:
        while len(values) < wanted:
            assert time.monotonic() < end_s, f"{len(values)} of {wanted} records, {kills} kills"
            message = consumer.poll(0.05)
            # A broker that is away is an event here, not an end.
            if message is not None and message.error() is None:
                values.append(number_of(message))
            if pauses.count > seen and kills < KILLS:
                broker.kill()
                broker.restart()
                kills += 1
                seen = pauses.count
    finally:
        consumer.close()
    return values, pauses.count


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_throttled_clients_lose_nothing_and_recover(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", options=WINDOWS)
    broker.start()
    try:
        set_quotas(broker.bootstrap)
        load = Load(broker.bootstrap)
        for _ in range(KILLS):
            load.send_until("a producer is throttled", partial(load.has_paused_since, load.pauses.count))
            broker.kill()
            broker.restart()
        # The quota has outlived its broker: the same client pauses again, and goes on after that.
        before, delivered = load.pauses.count, len(load.acknowledged)
        load.send_until(
            "it is throttled again, and served",
            lambda: load.pauses.count > before and len(load.acknowledged) > delivered,
        )
        load.finish()
        values, pauses = read(broker, len(load.acknowledged))
        assert values == load.acknowledged
        assert values == sorted(set(values))
        assert pauses
    finally:
        broker.close()
