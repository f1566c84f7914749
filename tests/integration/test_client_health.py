"""``health()``: what a readiness probe sees of consumers and producers in good and bad times."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.consumer_faces import FACES, create_topic, end, produce, read, tp
from tests.rigs.waiting import wait_until

from tidelog.client import Consumer, Producer, RebalanceListener, StreamConsumer, TopicPartition
from tidelog.client.group.membership import MembershipState
from tidelog.errors import TidelogError
from tidelog.testing import broker
from tidelog.testing.broker_process import BrokerProcess

QUICK: dict[str, Any] = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 10,
    "retry_backoff_ms": 1,
    "fetch_max_wait_ms": 50,
    "auto_offset_reset": "earliest",
}
PROTOCOLS = ("classic", "consumer")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    options = {
        "group.min.session.timeout.ms": 1,
        "group.consumer.min.heartbeat.interval.ms": 1,
        "group.consumer.heartbeat.interval.ms": 100,
    }
    with broker(options=options) as running:
        yield running.bootstrap_servers


@pytest.fixture
def topic(servers: str, topic_name: Callable[[], str]) -> str:
    name = topic_name()
    create_topic(servers, name)
    produce(servers, name, [b"1", b"2", b"3"])
    return name


@pytest.fixture(params=FACES)
def consumer_of(request: pytest.FixtureRequest) -> Iterator[Open]:
    opened: list[Any] = []

    def open_one(bootstrap: str, **options: object) -> Any:
        if options.get("group_protocol") != "consumer":
            options["heartbeat_interval_ms"] = 100
        consumer = FACES[request.param](bootstrap_servers=bootstrap, **{**QUICK, **options})
        opened.append(consumer)
        return consumer

    yield open_one
    for consumer in opened:
        consumer.close(0.1)
        end(consumer)


def polled_until(consumer: Any, condition: Callable[[], object], what: str) -> None:
    def polled() -> object:
        consumer.poll(0.01)
        return condition()

    wait_until(polled, what)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_consumer_that_reads_is_healthy_and_says_how_far_it_is(
    consumer_of: Open, servers: str, topic: str, protocol: str
) -> None:
    consumer = consumer_of(servers, group_id=topic, group_protocol=protocol, max_poll_records=1)
    assert consumer.health().reason == "the consumer reads nothing: subscribe to topics or assign partitions"
    consumer.subscribe(topic)
    assert consumer.health().reason == "the consumer was not polled yet: call poll"
    read(consumer, 1)
    health = consumer.health()
    assert (health.ok, health.reason, health.ongoing_error) == (True, None, None)
    assert (health.group_id, health.group_state) == (topic, MembershipState.STABLE)
    assert (health.assigned, health.lag, health.lag_by_partition) == ((tp(topic),), 2, {tp(topic): 2})
    assert health.member_id == consumer.group_metadata().member_id
    assert health.generation == consumer.group_metadata().generation_id
    assert health.seconds_since_commit is None
    assert health.seconds_since_poll is not None
    assert health.seconds_since_fetch is not None
    read(consumer, 2)
    consumer.commit()
    health = consumer.health()
    assert health.lag == 0
    assert health.seconds_since_commit is not None
    shown = json.loads(json.dumps(health.as_dict()))
    assert (shown["ok"], shown["group_state"], shown["assigned"]) == (True, "stable", [f"{topic}-0"])
    assert (shown["lag"], shown["lag_by_partition"]) == (0, {f"{topic}-0": 0})
    consumer.close()
    assert consumer.health().reason == "the consumer is closed"


def test_records_that_iteration_has_not_handed_out_count_as_lag(servers: str, topic: str) -> None:
    with Consumer(bootstrap_servers=servers, **QUICK) as consumer:
        consumer.assign([tp(topic)])
        records = iter(consumer)
        assert [(next(records).value, consumer.health().lag) for _ in range(3)] == [
            (b"1", 2),
            (b"2", 1),
            (b"3", 0),
        ]


def test_without_a_group_a_consumer_is_healthy_once_it_has_polled(
    consumer_of: Open, servers: str, topic: str
) -> None:
    consumer = consumer_of(servers)
    consumer.assign([tp(topic)])
    assert consumer.health().reason == "the consumer was not polled yet: call poll"
    read(consumer, 3)
    health = consumer.health()
    assert (health.ok, health.group_state, health.group_id, health.generation) == (
        True,
        MembershipState.NO_GROUP,
        None,
        None,
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_without_partitions_is_healthy(
    consumer_of: Open, servers: str, topic: str, protocol: str
) -> None:
    members = [consumer_of(servers, group_id=topic, group_protocol=protocol) for _ in range(2)]
    for each in members:
        each.subscribe(topic)

    def is_settled() -> bool:
        for each in members:
            each.poll(0.01)
        states = [each.health() for each in members]
        stable = all(each.group_state is MembershipState.STABLE for each in states)
        return stable and sorted(len(each.assigned) for each in states) == [0, 1]

    wait_until(is_settled, "one member with the partition and one without")
    assert [each.health().reason for each in members] == [None, None]
    assert next(each.health().lag for each in members if not each.health().assigned) is None


def test_paused_partitions_are_healthy(consumer_of: Open, servers: str, topic: str) -> None:
    consumer = consumer_of(servers, group_id=topic)
    consumer.subscribe(topic)
    read(consumer, 3)
    consumer.pause([tp(topic)])
    consumer.poll(0.01)
    health = consumer.health()
    assert (health.ok, health.paused) == (True, (tp(topic),))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_consumer_that_is_not_polled_is_evicted_and_healthy_again_after_a_poll(
    consumer_of: Open, servers: str, topic: str, protocol: str
) -> None:
    limits: dict[str, object] = {"max_poll_interval_ms": 1000}
    if protocol == "classic":
        limits["session_timeout_ms"] = 1000
    consumer = consumer_of(servers, group_id=topic, group_protocol=protocol, **limits)
    consumer.subscribe(topic)
    read(consumer, 3)
    wait_until(lambda: consumer.health().group_state is MembershipState.UNJOINED, "the eviction")
    health = consumer.health()
    assert not health.ok
    assert "poll was not called for" in health.reason
    assert "max.poll.interval.ms" in health.reason

    def recovered() -> bool:
        # One snapshot: where the machine is slow, the next one may be of another eviction.
        health = consumer.health()
        return bool(health.ok and health.assigned == (tp(topic),))

    polled_until(consumer, recovered, "a healthy consumer with its partition")


def test_a_static_member_that_another_has_replaced_is_not_healthy(
    consumer_of: Open, servers: str, topic: str
) -> None:
    first, second = (consumer_of(servers, group_id=topic, group_instance_id="one") for _ in range(2))
    first.subscribe(topic)
    read(first, 3)
    second.subscribe(topic)
    polled_until(second, lambda: second.health().ok, "a healthy second member")
    wait_until(lambda: first.health().group_state is MembershipState.FENCED, "the first to be fenced")
    assert first.health().reason.startswith("another consumer has joined with this group.instance.id")


def test_a_probe_is_answered_while_the_consumer_is_stuck_in_user_code(servers: str, topic: str) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    class Slow(RebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            stuck.set()
            go_on.wait(60)

    with Consumer(bootstrap_servers=servers, group_id=topic, **QUICK) as consumer:
        consumer.subscribe(topic, listener=Slow())
        polling = threading.Thread(target=read, args=(consumer, 3))
        polling.start()
        try:
            assert stuck.wait(60)
            health = consumer.health()
            assert health.assigned == (tp(topic),)
        finally:
            go_on.set()
            polling.join(60)
        assert consumer.health().ok


def test_a_dead_broker_shows_in_both_clients(consumer_of: Open, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as running:
        create_topic(running.bootstrap, "t")
        produce(running.bootstrap, "t", [b"1"])
        consumer = consumer_of(running.bootstrap, group_id="g")
        consumer.subscribe("t")
        read(consumer, 1)
        quick: dict[str, Any] = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 10}
        with Producer(bootstrap_servers=running.bootstrap, **quick) as producer:
            producer.send("t", b"2").result(60)
            health = producer.health()
            assert (health.ok, health.connected, health.buffered_records) == (True, True, 0)
            assert health.seconds_since_acknowledgement is not None
            running.kill()
            producer.send("t", b"3")
            wait_until(lambda: not producer.health(patience=0.2).ok, "an unhealthy producer")
            polled_until(consumer, lambda: not consumer.health(patience=0.2).ok, "an unhealthy consumer")
            for each in (producer.health(patience=0.2), consumer.health(patience=0.2)):
                assert each.reason is not None
                assert f"cannot connect to {running.bootstrap}: connection refused" in each.reason
                assert each.ongoing_error is not None
                assert each.ongoing_error.seconds > 0.2
                assert json.loads(json.dumps(each.as_dict()))["ongoing_error"]["since"].startswith("20")
            health = producer.health()
            assert (health.connected, health.buffered_records, health.in_flight_requests) == (False, 1, 0)
            assert health.buffered_bytes > 0
            assert health.oldest_unsent_seconds is not None
            running.restart()
            wait_until(lambda: producer.health(patience=0.0).ongoing_error is None, "a healthy producer")
            wait_until(lambda: producer.health().buffered_records == 0, "the record to be written")
            polled_until(consumer, lambda: consumer.health().ongoing_error is None, "a healthy consumer")
        assert producer.health().reason == "the producer is closed"


def test_a_producer_shows_its_transaction_and_that_it_was_fenced(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        assert producer.health().transaction_state == "uninitialized"
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"4")
            assert (producer.health().transactional_id, producer.health().transaction_state) == (
                topic,
                "in transaction",
            )
        assert (producer.health().ok, producer.health().transaction_state) == (True, "ready")
        with Producer(bootstrap_servers=servers, transactional_id=topic) as newer:
            newer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"5")
            for end_transaction in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(TidelogError):
                    end_transaction()
        health = producer.health()
        assert health.reason is not None
        assert health.reason.startswith("the producer has failed, close it and make another: ")
    with Producer(bootstrap_servers=servers) as plain:
        assert plain.health().transaction_state is None


def test_streams_are_healthy_while_all_of_them_read(servers: str, topic: str) -> None:
    handled = threading.Event()

    def handle(record: Any) -> None:
        handled.set()
        if record.value == b"bad":
            raise ValueError("a bad record")

    streams = StreamConsumer({topic: 1}, handle, bootstrap_servers=servers, group_id=topic, **QUICK)
    assert streams.health().reason == "the streams have not started yet"
    with streams:
        assert handled.wait(60)
        wait_until(lambda: streams.health().ok, "healthy streams")
        health = streams.health()
        assert [each.assigned for each in health.streams.values()] == [(tp(topic),)]
        assert json.loads(json.dumps(health.as_dict()))["streams"][f"{topic} stream 0"]["ok"]
        produce(servers, topic, [b"bad"])
        wait_until(lambda: "a bad record" in (streams.health().reason or ""), "the end of the streams")
    assert streams.health().reason == "the streams are closed"


def test_a_forked_child_is_answered_and_not_healthy(servers: str, topic: str) -> None:
    program = f"""
import os
from tidelog import Consumer, Producer
with Producer(bootstrap_servers={servers!r}) as producer, Consumer(bootstrap_servers={servers!r}) as consumer:
    consumer.assign([({topic!r}, 0)])
    consumer.poll(0.01)
    child = os.fork()
    if child == 0:
        print(producer.health().reason)
        print(consumer.health().reason, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (
        0,
        "the producer belongs to the parent of this process: make one here\n"
        "the consumer belongs to the parent of this process: make one here\n",
    )
