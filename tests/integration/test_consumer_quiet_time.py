"""The clock of ``records(timeout=…)`` begins with the first assignment."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.consumer_faces import (
    DEADLINE_S,
    FACES,
    create_topic,
    end,
    numbered,
    produce,
    tp,
    values,
)
from tests.rigs.waiting import wait_until

from tidelog.client.consumer.errors import ConsumerTimeoutError
from tidelog.testing import broker
from tidelog.testing.broker import QUICK_OPTIONS
from tidelog_rewards.demo import run as demo

SHORT_S = 0.2
DELAY = "group.initial.rebalance.delay.ms"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def slow_groups() -> Iterator[str]:
    """A broker whose groups take several times as long to begin as iterations wait here."""
    with broker(options={DELAY: 1000}) as running:
        yield running.bootstrap_servers


@pytest.fixture(params=FACES)
def consumer_of(request: pytest.FixtureRequest) -> Iterator[Open]:
    opened: list[Any] = []

    def open_one(bootstrap: str, **options: object) -> Any:
        options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **options}
        opened.append(FACES[request.param](bootstrap_servers=bootstrap, **options))
        return opened[-1]

    yield open_one
    for consumer in opened:
        consumer.close(0.1)
        end(consumer)


def test_a_group_that_takes_longer_to_begin_than_the_timeout_is_waited_for(
    consumer_of: Open, slow_groups: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(slow_groups, topic)
    consumer = consumer_of(slow_groups, group_id=topic)
    consumer.subscribe(topic)
    assert list(consumer.records(timeout=SHORT_S)) == []
    assert consumer.assignment() == {tp(topic)}


def test_a_member_that_gets_no_partition_ends_as_any_other(
    consumer_of: Open, slow_groups: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(slow_groups, topic)
    produce(slow_groups, topic, numbered(3))
    consumer = consumer_of(slow_groups, group_id=topic)
    consumer.subscribe(topic)
    consumer.unsubscribe()
    consumer.subscribe([])
    assert list(consumer.records(timeout=SHORT_S)) == []
    assert consumer.assignment() == set()


def test_records_that_come_with_the_assignment_are_read(
    consumer_of: Open, slow_groups: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(slow_groups, topic)
    produce(slow_groups, topic, numbered(3))
    consumer = consumer_of(slow_groups, group_id=topic, max_poll_records=1)
    consumer.subscribe(topic)
    records = consumer.records(timeout=DEADLINE_S)
    assert values([next(records) for _ in range(3)]) == numbered(3)


def test_an_iteration_that_never_gets_an_assignment_fails_with_the_reason(consumer_of: Open) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        limits = {"default_api_timeout_ms": 500, "request_timeout_ms": 500}
        consumer = consumer_of(address, group_id="g", **limits)
        consumer.subscribe("t")
        words = (
            rf"assigned no partitions within .* s: cannot connect to {re.escape(address)}: connection refused"
        )
        wait_until(lambda: consumer.poll(SHORT_S) or consumer.ongoing_error(), "the reason")
        with pytest.raises(ConsumerTimeoutError, match=words):
            list(consumer.records(timeout=SHORT_S))


def test_brokers_for_one_machine_begin_groups_at_once() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^broker:.*\n((?:\t.*\n)+)", makefile, re.M)
    assert f"--set {DELAY}=0" in recipe
    assert f"{DELAY}=0" in demo._QUIET_BROKER
    assert QUICK_OPTIONS[DELAY] == 0
