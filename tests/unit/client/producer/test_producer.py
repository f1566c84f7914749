"""The synchronous producer: what its callbacks may do."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.rigs.waiting import wait_until
from tests.unit.client.producer.idempotent_broker import IdempotentBroker

from tidelog.client.errors import ClientClosedError
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.record_future import Delivery
from tidelog.ids import random_uuid
from tidelog.wire.api import ApiKey

WAIT_S = 20


def test_a_delivery_callback_that_closes_the_producer_ends_what_is_under_way(scripted_broker: Any) -> None:
    broker = IdempotentBroker(scripted_broker)
    answer = broker.produce
    # Nobody acknowledges the second record, however long the close takes to begin.
    scripted_broker.handlers[ApiKey.PRODUCE] = lambda request, version: (
        answer(request, version) if not broker.requests else None
    )
    scripted_broker.add_topic("t", 1, topic_id=random_uuid())
    later: list[Delivery] = []
    closed = threading.Event()

    def program() -> None:
        producer = Producer(bootstrap_servers=scripted_broker.address, linger_ms=0)

        def delivered(metadata: object, error: Exception | None) -> None:
            later.append(producer.send("t", b"later"))
            producer.close()
            closed.set()

        producer.send("t", b"first", on_delivery=delivered).result(WAIT_S)
        assert closed.wait(WAIT_S)
        assert isinstance(later[0].exception(WAIT_S), ClientClosedError)
        wait_until(lambda: not any(producer_thread.is_alive() for producer_thread in threads(producer)))
        producer.close()

    def threads(producer: Producer) -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == producer._thread.name]

    async def main() -> None:
        async with scripted_broker, asyncio.timeout(WAIT_S * 2):
            await asyncio.to_thread(program)

    asyncio.run(main())
