"""``send`` as producers have it: the send path's own, unless a subclass has another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.client.errors import ClientClosedError, RequestTimeoutError
from tidelog.client.producer import AsyncProducer, Producer, ProducerInterceptor, RecordMetadata
from tidelog.client.producer._transaction.sequences import ProducerIdentity
from tidelog.client.producer._transaction.transaction_states import TransactionState
from tidelog.client.producer.errors import TransactionAbortedError
from tidelog.client.producer.record_future import Delivery
from tidelog.client.serialization import SerializationError

SERVERS = "127.0.0.1:1"


class Refusing(AsyncProducer):
    """A producer of somebody else's, with a ``send`` of its own."""

    def send(self, topic: Any, *args: Any, **keywords: Any) -> Any:
        """Let nothing into one topic."""
        if topic == "closed for today":
            return "refused"
        return super().send(topic, *args, **keywords)


def test_every_record_goes_straight_to_the_send_path() -> None:
    producer = AsyncProducer(bootstrap_servers=SERVERS)
    assert producer.send == producer.send_path.send


def test_a_synchronous_producer_sends_by_the_path_of_its_core() -> None:
    with Producer(bootstrap_servers=SERVERS) as producer:
        assert producer.send == producer.send_path.send


def test_a_subclass_may_have_a_send_of_its_own() -> None:
    async def main() -> None:
        producer = Refusing(bootstrap_servers=SERVERS)
        assert producer.send("closed for today", b"x") == "refused"
        assert not producer.send("orders", b"x").done()
        await producer.close(0)

    asyncio.run(main())


def test_a_producer_that_was_closed_before_it_was_used_takes_no_records() -> None:
    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=SERVERS)
        await producer.close()
        with pytest.raises(ClientClosedError, match="the producer is closed"):
            producer.send("orders", b"x")

    asyncio.run(main())


def test_a_closed_synchronous_producer_takes_no_records() -> None:
    producer = Producer(bootstrap_servers=SERVERS)
    producer.close()
    with pytest.raises(ClientClosedError, match="the producer is closed"):
        producer.send("orders", b"x")


def test_a_record_whose_producer_is_closed_in_the_same_turn_of_the_loop_fails() -> None:
    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=SERVERS)
        sent = [producer.send("orders", b"x"), producer.send("orders", b"y"), producer.send("bills", b"z")]
        await producer.close(0)
        for each in sent:
            assert each.done()
            with pytest.raises(ClientClosedError, match="closed before the record was sent"):
                await asyncio.wait_for(each, 20)

    asyncio.run(main())


def test_a_topic_whose_waiting_records_were_dropped_takes_others() -> None:
    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=SERVERS, transactional_id="t", max_block_ms=1000)
        manager = producer.send_path.transactions
        assert manager is not None
        manager.to(TransactionState.INITIALIZING)
        manager.initialized(ProducerIdentity(1, 0))
        await producer.begin_transaction()
        dropped = producer.send("orders", b"x")
        # In the same turn: what appends the record has not begun yet.
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await dropped
        await producer.begin_transaction()
        # It is waited for, in vain as nothing listens there, and not left in a line that nobody works off.
        with pytest.raises(RequestTimeoutError, match="orders"):
            await asyncio.wait_for(producer.send("orders", b"y"), 20)
        await asyncio.wait_for(producer.drain(), 20)
        await producer.close(0)

    asyncio.run(main())


Told = list[tuple[RecordMetadata, Exception | None]]


class Listening(ProducerInterceptor):
    """Notes every acknowledgement."""

    def __init__(self) -> None:
        self.told: Told = []

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.told.append((metadata, error))


@pytest.mark.parametrize("end", ["time is up", "closed"])
def test_callbacks_and_interceptors_hear_once_of_records_that_were_never_buffered(end: str) -> None:
    listening = Listening()
    told: Told = []

    def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
        told.append((metadata, error))
        raise RuntimeError("a callback that fails keeps no other from being called")

    async def main() -> None:
        producer = AsyncProducer(
            bootstrap_servers=SERVERS,
            max_block_ms=1 if end == "time is up" else 60_000,
            interceptor_classes=[listening],
        )
        sent = [
            producer.send("orders", b"x", partition=2, timestamp_ms=5, on_delivery=on_delivery),
            producer.send("orders", b"yy", key=b"k", timestamp_ms=6, on_delivery=on_delivery),
        ]
        if end == "time is up":
            await asyncio.wait_for(producer.drain(), 20)
        await producer.close(0)
        errors = [each.exception() for each in sent]
        assert told == [
            (RecordMetadata("orders", 2, -1, 5, -1, 1), errors[0]),
            (RecordMetadata("orders", -1, -1, 6, 1, 2), errors[1]),
        ]
        wanted = RequestTimeoutError if end == "time is up" else ClientClosedError
        assert all(isinstance(each, wanted) for each in errors)

    asyncio.run(main())
    assert listening.told == told


def test_a_callback_may_send_again_what_was_dropped() -> None:
    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=SERVERS, max_block_ms=1)
        again: list[Delivery] = []
        first = producer.send(
            "orders", b"x", on_delivery=lambda metadata, error: again.append(producer.send("orders", b"x"))
        )
        with pytest.raises(RequestTimeoutError, match="orders"):
            await asyncio.wait_for(first, 20)
        assert len(again) == 1
        with pytest.raises(RequestTimeoutError, match="orders"):
            await asyncio.wait_for(again[0], 20)
        await producer.close(0)

    asyncio.run(main())


def test_interceptors_hear_of_records_that_send_refuses() -> None:
    listening = Listening()
    with Producer(bootstrap_servers=SERVERS, max_block_ms=1, interceptor_classes=[listening]) as producer:
        with pytest.raises(RequestTimeoutError) as late:
            producer.send("orders", b"x", partition=1)
        with pytest.raises(SerializationError) as odd:
            producer.send("orders", 7, timestamp_ms=5)  # type: ignore[arg-type]
    assert listening.told == [
        (RecordMetadata("orders", 1, -1, -1), late.value),
        (RecordMetadata("orders", -1, -1, 5), odd.value),
    ]
