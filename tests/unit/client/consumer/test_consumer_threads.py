"""The synchronous face: what runs in whose thread, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.errors import IllegalStateError, WakeupError
from tidelog.client.errors import ClientClosedError
from tidelog.client.group.membership import NoGroup
from tidelog.ids import TopicPartition
from tidelog.testing.reserved_port import ReservedPort

T0 = TopicPartition("t", 0)


class TellingGroup(NoGroup):
    """Calls the listener at the first poll and remembers what was committed, and that it was left."""

    def __init__(self) -> None:
        self.committed: list[Mapping[Any, Any]] = []
        self.left = False
        self._told = False

    def start(self, cluster: Any, subscription: Any, callbacks: Any) -> TellingGroup:
        self._subscription, self._callbacks = subscription, callbacks
        return self

    async def ensure_active(self, deadline: Any) -> bool:
        if not self._told:
            self._told = True
            self._subscription.assign_from_group([T0])
            await self._callbacks.assigned([T0])
        return True

    async def commit(self, offsets: Mapping[Any, Any], deadline: Any) -> None:
        self.committed.append(offsets)

    async def leave(self, deadline: Any) -> None:
        self.left = True


@pytest.fixture
def unreachable() -> Iterator[str]:
    with ReservedPort() as nobody:
        yield f"127.0.0.1:{nobody.port}"


def listening(call: Callable[[Any], Any]) -> Any:
    from tidelog.client.subscription.listener import RebalanceListener

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: Any) -> object:
            return call(partitions)

    return Listener()


def grouped(unreachable: str, listener: Any) -> tuple[Consumer, TellingGroup]:
    consumer = Consumer(bootstrap_servers=unreachable)
    group = TellingGroup()
    consumer._core._start_membership = group.start
    consumer._core._subscription.subscribe(["t"], listener)
    return consumer, group


def test_listeners_run_in_the_polling_thread_and_may_call_the_consumer(unreachable: str) -> None:
    threads = []

    def assigned(partitions: Any) -> None:
        threads.append(threading.get_ident())
        consumer.seek(T0, 5)
        consumer.commit({T0: 5})

    consumer, group = grouped(unreachable, listening(assigned))
    with consumer:
        assert consumer.poll(0) == []
    assert threads == [threading.get_ident()]
    assert [offsets[T0].offset for offsets in group.committed] == [5]


def test_what_a_listener_raises_comes_out_of_poll(unreachable: str) -> None:
    def assigned(partitions: Any) -> None:
        raise ValueError("not these")

    consumer, _ = grouped(unreachable, listening(assigned))
    with consumer:
        with pytest.raises(ValueError, match="not these"):
            consumer.poll(0)
        assert consumer.poll(0) == []


def test_an_async_listener_is_refused_with_the_mend(unreachable: str) -> None:
    async def assigned(partitions: Any) -> None:
        return None

    consumer, _ = grouped(unreachable, listening(assigned))
    with consumer, pytest.raises(IllegalStateError, match="AsyncConsumer"):
        consumer.poll(0)


def test_a_second_thread_is_refused_while_one_polls(unreachable: str) -> None:
    inside = threading.Event()
    leave = threading.Event()

    def assigned(partitions: Any) -> None:
        inside.set()
        assert leave.wait(20)

    consumer, _ = grouped(unreachable, listening(assigned))
    polling = threading.Thread(target=lambda: consumer.poll(0))
    polling.start()
    try:
        assert inside.wait(20)
        with pytest.raises(IllegalStateError, match="another thread"):
            consumer.seek(T0, 1)
    finally:
        leave.set()
        polling.join(20)
        consumer.close()


def test_a_close_by_a_second_thread_is_refused_without_effect(unreachable: str) -> None:
    inside = threading.Event()
    leave = threading.Event()

    def assigned(partitions: Any) -> None:
        inside.set()
        assert leave.wait(20)

    consumer, group = grouped(unreachable, listening(assigned))
    polling = threading.Thread(target=lambda: consumer.poll(0))
    polling.start()
    try:
        assert inside.wait(20)
        with pytest.raises(IllegalStateError, match="another thread"):
            consumer.close()
    finally:
        leave.set()
        polling.join(20)
    consumer.commit({T0: 5})
    assert consumer.poll(0) == []
    assert not group.left
    consumer.close()
    assert group.left


def test_a_wakeup_before_the_poll_ends_that_poll(unreachable: str) -> None:
    with Consumer(bootstrap_servers=unreachable) as consumer:
        consumer.assign([T0])
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(20)
        assert consumer.poll(0) == []


def test_a_closed_consumer_refuses_everything_but_another_close(unreachable: str) -> None:
    consumer = Consumer(bootstrap_servers=unreachable)
    consumer.close()
    consumer.close()
    for call in (lambda: consumer.poll(0), lambda: consumer.assign([T0]), lambda: consumer.position(T0)):
        with pytest.raises(ClientClosedError):
            call()
    assert list(consumer) == []
