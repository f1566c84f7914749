"""What producers promise while brokers die and connections are cut.

Nothing acknowledged is lost, a partition's records keep their order, and none is written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cutting_proxy import CuttingProxy
from tests.integration.fault_proxy import FaultProxy
from tests.integration.test_producer import values

from tidelog.client.admin.admin import Admin
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer import AsyncProducer, Producer
from tidelog.client.producer.record_future import Delivery
from tidelog.client.resources import NewTopic
from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.reserved_port import ReservedPort

WAIT_S = 60


def numbers(bootstrap: str, topic: str, *, committed: bool = False) -> list[int]:
    return [int(value or b"") for value in values(bootstrap, topic, committed=committed)]


@pytest.mark.parametrize("in_flight", [1, 5])
def test_a_killed_broker_costs_no_record_and_doubles_none(tmp_path: Path, in_flight: int) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        producer = Producer(
            bootstrap_servers=broker.bootstrap,
            batch_size=1000,
            linger_ms=1,
            max_in_flight_requests_per_connection=in_flight,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
        )
        stop = threading.Event()
        futures: list[Delivery] = []

        def work() -> None:
            while not stop.is_set():
                futures.append(producer.send("t", b"%d" % len(futures)))
                if len(futures) % 500 == 0:
                    futures[-1].result(WAIT_S)

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(3):
            seen = len(futures)
            while len(futures) < seen + 1000:
                assert thread.is_alive()
            broker.kill()
            broker.restart()
        stop.set()
        thread.join(WAIT_S)
        producer.close()
        offsets = [future.result(0).offset for future in futures]
        assert offsets == list(range(len(futures)))
        assert numbers(broker.bootstrap, "t") == list(range(len(futures)))


@contextlib.contextmanager
def behind_proxy(
    tmp_path: Path, *, cuts: int, max_bytes: int, seed: int
) -> Iterator[tuple[CuttingProxy, str]]:
    """A broker that sends its clients through a proxy, and an address that avoids it."""
    with ReservedPort() as behind:
        proxy = CuttingProxy(f"127.0.0.1:{behind.port}", cuts=cuts, max_bytes=max_bytes, seed=seed)
        with proxy, advertised(tmp_path, behind.port, proxy.address) as direct:
            yield proxy, direct


@contextlib.contextmanager
def advertised(tmp_path: Path, port: int, proxy: str) -> Iterator[str]:
    """A broker on ``port`` that advertises ``proxy`` in its place, and an address that avoids it."""
    with ReservedPort() as direct:
        options = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},DIRECT://127.0.0.1:{direct.port}",
            "advertised.listeners": f"PLAINTEXT://{proxy},DIRECT://127.0.0.1:{direct.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,DIRECT:PLAINTEXT",
        }
        with BrokerProcess(tmp_path / "data", options=options, port=port):
            yield f"127.0.0.1:{direct.port}"


def create_topic(broker: BrokerProcess) -> None:
    """Create topic ``t`` with a client that has time for it."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        for created in admin.create_topics([NewTopic("t", 1)]):
            created.raise_for_error()


IMPATIENT: dict[str, Any] = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20}


@pytest.mark.parametrize("seed", range(4))
def test_connections_cut_at_any_byte_cost_no_record_and_double_none(tmp_path: Path, seed: int) -> None:
    with behind_proxy(tmp_path, cuts=40, max_bytes=6000, seed=seed) as (proxy, direct):
        producer = Producer(bootstrap_servers=proxy.address, batch_size=500, linger_ms=1, **IMPATIENT)
        futures: list[Delivery] = []
        while proxy.cuts_left > 0:
            futures.append(producer.send("t", b"%d" % len(futures)))
            if len(futures) % 50 == 0:
                futures[-1].result(WAIT_S)
        producer.close()
        assert [future.result(0).offset for future in futures] == list(range(len(futures)))
        assert numbers(direct, "t") == list(range(len(futures)))


@pytest.mark.parametrize("seed", range(2))
def test_transactions_through_cut_connections_are_whole(tmp_path: Path, seed: int) -> None:
    with behind_proxy(tmp_path, cuts=40, max_bytes=4000, seed=seed) as (proxy, direct):
        with Producer(
            bootstrap_servers=proxy.address, transactional_id="t", batch_size=500, linger_ms=1, **IMPATIENT
        ) as producer:
            producer.init_transactions()
            number = 0
            committed: list[int] = []
            while proxy.cuts_left > 0:
                producer.begin_transaction()
                numbers_sent = list(range(number, number + 30))
                for each in numbers_sent:
                    producer.send("t", b"%d" % each)
                number += 30
                if number % 4 == 0:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    committed += numbers_sent
        assert numbers(direct, "t", committed=True) == committed


def transact(producer: Producer, first: int, count: int, *, commit: bool = True) -> list[int]:
    """One transaction of so many numbers; those that are committed."""
    sent = list(range(first, first + count))
    producer.begin_transaction()
    for each in sent:
        producer.send("t", b"%d" % each)
    _call_until_done(producer.commit_transaction if commit else producer.abort_transaction)
    return sent if commit else []


def test_transactions_through_killed_brokers_are_whole(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        options = {"batch_size": 500, "linger_ms": 1, **IMPATIENT}
        with Producer(bootstrap_servers=broker.bootstrap, transactional_id="t", **options) as producer:
            producer.init_transactions()
            committed = transact(producer, 0, 30)
            kills = [threading.Timer(0.001 * wait, _kill_and_restart, [broker]) for wait in (5, 40, 0)]
            for round_number, kill in enumerate(kills, 1):
                kill.start()
                number = 1000 * round_number
                while kill.is_alive():
                    committed += transact(producer, number, 30, commit=number % 4 != 0)
                    number += 30
        assert numbers(broker.bootstrap, "t", committed=True) == committed


def _kill_and_restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.restart()


def test_a_frozen_broker_holds_a_transaction_up_and_does_not_tear_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker)
        options = {"request_timeout_ms": 1000, "max_block_ms": 2000, **IMPATIENT}
        with Producer(bootstrap_servers=broker.bootstrap, transactional_id="t", **options) as producer:
            _call_until_done(producer.init_transactions)
            _call_until_done(lambda: producer.partitions_for("t"))
            committed = transact(producer, 0, 30)
            producer.begin_transaction()
            sent = [producer.send("t", b"%d" % number) for number in range(30, 60)]
            broker.send_signal(signal.SIGSTOP)
            with pytest.raises(RequestTimeoutError, match=r"max\.block\.ms=2000"):
                producer.commit_transaction()
            broker.send_signal(signal.SIGCONT)
            _call_until_done(producer.commit_transaction)
            assert all(future.result(WAIT_S).has_offset for future in sent)
            committed += range(30, 60)
            committed += transact(producer, 60, 30)
        assert numbers(broker.bootstrap, "t", committed=True) == committed


def _call_until_done(call: Callable[[], object]) -> None:
    """A call that took too long goes on and may be called again."""
    for _ in range(WAIT_S * 2):
        with contextlib.suppress(RequestTimeoutError):
            call()
            return
    raise AssertionError("the call has not ended")


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_broker_that_trickles_is_written_to(tmp_path: Path, transactional_id: str | None) -> None:
    proxy = FaultProxy(trickle=7)
    try:
        with ReservedPort() as behind, advertised(tmp_path, behind.port, proxy.address) as direct:
            proxy.start(behind.port)
            options: dict[str, Any] = {
                "batch_size": 200,
                "linger_ms": 0,
                "transactional_id": transactional_id,
            }
            with Producer(bootstrap_servers=proxy.address, **options) as producer:
                if transactional_id is not None:
                    producer.init_transactions()
                    transact(producer, 0, 100)
                else:
                    futures = [producer.send("t", b"%d" % number) for number in range(100)]
                    assert [each.result(WAIT_S).offset for each in futures] == list(range(100))
            assert numbers(direct, "t", committed=True) == list(range(100))
    finally:
        proxy.close()


def test_the_async_producer_survives_the_same_cuts(tmp_path: Path) -> None:
    async def main(address: str, proxy: CuttingProxy) -> int:
        async with AsyncProducer(
            bootstrap_servers=address, batch_size=500, linger_ms=1, **IMPATIENT
        ) as producer:
            count = 0
            while proxy.cuts_left > 0:
                results = await asyncio.gather(
                    *(producer.send("t", b"%d" % number) for number in range(count, count + 40))
                )
                assert [result.offset for result in results] == list(range(count, count + 40))
                count += 40
            return count

    with behind_proxy(tmp_path, cuts=30, max_bytes=6000, seed=7) as (proxy, direct):
        count = asyncio.run(main(proxy.address, proxy))
        assert numbers(direct, "t") == list(range(count))


def test_records_that_nobody_takes_expire_with_an_honest_error(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker)
        producer = Producer(
            bootstrap_servers=broker.bootstrap,
            delivery_timeout_ms=600,
            request_timeout_ms=300,
            linger_ms=0,
            **IMPATIENT,
        )
        count = itertools.count()
        first = _taken(producer, count)
        broker.kill()
        lost = [producer.send("t", b"%d" % next(count)) for _ in range(3)]
        for future in lost:
            with pytest.raises(RequestTimeoutError, match=r"delivery\.timeout\.ms=600"):
                future.result(WAIT_S)
        broker.restart()
        # What expired has left a hole in the sequence numbers; the producer goes on all the same.
        again = [_taken(producer, count)]
        burst = [(number, producer.send("t", b"%d" % number)) for number in itertools.islice(count, 46)]
        for number, future in burst:
            with contextlib.suppress(RequestTimeoutError):
                assert future.result(WAIT_S).has_offset
                again.append(number)
        producer.close()
        written = numbers(broker.bootstrap, "t")
        assert written == sorted(set(written))
        assert {first, *again} <= set(written)


def _taken(producer: Producer, count: Iterator[int]) -> int:
    """Send numbers until one is acknowledged: on a busy machine some expire before the broker has them."""
    for number in itertools.islice(count, 200):
        with contextlib.suppress(RequestTimeoutError):
            assert producer.send("t", b"%d" % number).result(WAIT_S).has_offset
            return number
    raise AssertionError("none was acknowledged")


def test_a_frozen_broker_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Producer(bootstrap_servers=broker.bootstrap, request_timeout_ms=300, **IMPATIENT) as producer:
            producer.send("t", b"0").result(WAIT_S)
            broker.send_signal(signal.SIGSTOP)
            futures = [producer.send("t", b"%d" % number) for number in range(1, 100)]
            with pytest.raises(RequestTimeoutError):
                futures[0].result(0.5)
            broker.send_signal(signal.SIGCONT)
            assert [future.result(WAIT_S).offset for future in futures] == list(range(1, 100))
        assert numbers(broker.bootstrap, "t") == list(range(100))
