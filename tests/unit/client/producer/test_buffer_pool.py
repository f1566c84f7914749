from __future__ import annotations

import asyncio
import threading

import pytest
from tests.rigs.waiting import wait_until

from tidelog.client.producer._buffer_pool import BufferPool, PoolClosedError
from tidelog.client.producer.errors import BufferExhaustedError

WAIT_S = 60


class Waiters:
    """Threads that allocate one after another, in a known order, and note when they were served."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self.served: list[str] = []
        self.failed: list[tuple[str, Exception]] = []
        self._threads: list[threading.Thread] = []

    def add(self, name: str, size_bytes: int, max_block_s: float = WAIT_S) -> None:
        def work() -> None:
            try:
                self.pool.allocate(size_bytes, max_block_s)
            except Exception as error:
                self.failed.append((name, error))
            else:
                self.served.append(name)

        before = self.pool.waiter_count
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()
        wait_until(lambda: self.pool.waiter_count > before or not thread.is_alive())

    def join(self) -> None:
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_a_piece_of_the_usual_size_goes_round() -> None:
    pool = BufferPool(100, 10)
    assert pool.allocate_nowait(10)
    pool.deallocate(10)
    assert pool._free_pieces == 1
    assert pool.allocate_nowait(10)
    assert (pool._free_pieces, pool._unpooled_bytes) == (0, 90)


def test_another_size_is_taken_from_the_rest_and_returns_there() -> None:
    pool = BufferPool(100, 10)
    assert pool.allocate_nowait(25)
    assert pool.available_bytes == 75
    pool.deallocate(25)
    assert (pool._free_pieces, pool._unpooled_bytes) == (0, 100)


def test_free_pieces_are_given_up_for_a_size_that_the_rest_does_not_cover() -> None:
    pool = BufferPool(100, 10)
    for _ in range(10):
        assert pool.allocate_nowait(10)
    for _ in range(10):
        pool.deallocate(10)
    assert (pool._free_pieces, pool._unpooled_bytes) == (10, 0)
    assert pool.allocate_nowait(35)
    assert pool.available_bytes == 65
    assert (pool._free_pieces, pool._unpooled_bytes) == (6, 5)


def test_more_than_there_is_at_all_is_refused_at_once() -> None:
    with pytest.raises(BufferExhaustedError, match="larger than"):
        BufferPool(100, 10).allocate(101, WAIT_S)


def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    pool = BufferPool(30, 10)
    waiters = Waiters(pool)
    for _ in range(3):
        pool.allocate_nowait(10)
    for name in "abc":
        waiters.add(name, 10)
    for count in range(1, 4):
        pool.deallocate(10)
        wait_until(lambda count=count: len(waiters.served) == count)  # type: ignore[misc]
    waiters.join()
    assert waiters.served == ["a", "b", "c"]


def test_a_large_request_gathers_piece_by_piece_and_is_not_overtaken() -> None:
    pool = BufferPool(30, 10)
    waiters = Waiters(pool)
    for _ in range(3):
        pool.allocate_nowait(10)
    waiters.add("large", 25)
    waiters.add("small", 10)
    pool.deallocate(10)
    assert not pool.allocate_nowait(1)
    pool.deallocate(10)
    assert waiters.served == []
    pool.deallocate(10)
    wait_until(lambda: waiters.served == ["large"])
    assert pool.waiter_count == 1
    pool.deallocate(25)
    wait_until(lambda: waiters.served == ["large", "small"])
    waiters.join()
    assert pool.available_bytes == 20


def test_who_gives_up_leaves_what_it_had_gathered_to_the_next() -> None:
    pool = BufferPool(30, 10)
    waiters = Waiters(pool)
    for _ in range(3):
        pool.allocate_nowait(10)
    waiters.add("impatient", 25, max_block_s=0.3)
    pool.deallocate(10)
    waiters.add("patient", 10)
    waiters.join()
    assert waiters.served == ["patient"]
    [(name, error)] = waiters.failed
    assert name == "impatient"
    assert isinstance(error, BufferExhaustedError)
    assert pool.available_bytes == 0
    assert pool.exhausted_count == 1


def test_closing_wakes_everybody_who_waits() -> None:
    pool = BufferPool(10, 10)
    waiters = Waiters(pool)
    pool.allocate_nowait(10)
    waiters.add("a", 10)
    waiters.add("b", 5)
    pool.close()
    waiters.join()
    assert sorted(name for name, _ in waiters.failed) == ["a", "b"]
    assert all(isinstance(error, PoolClosedError) for _, error in waiters.failed)
    with pytest.raises(PoolClosedError):
        pool.allocate_nowait(1)


def test_threads_and_tasks_stand_in_one_line() -> None:
    pool = BufferPool(20, 10)
    waiters = Waiters(pool)
    for _ in range(2):
        pool.allocate_nowait(10)

    async def main() -> None:
        waiters.add("thread", 10)
        task = asyncio.create_task(pool.wait_allocate(10, WAIT_S))
        await asyncio.sleep(0)
        assert pool.waiter_count == 2
        pool.deallocate(10)
        wait_until(lambda: waiters.served == ["thread"])
        assert not task.done()
        pool.deallocate(10)
        await task

    asyncio.run(main())
    waiters.join()
    assert pool.available_bytes == 0


def test_a_task_that_is_cancelled_or_waits_too_long_takes_nothing() -> None:
    pool = BufferPool(20, 10)
    pool.allocate_nowait(15)

    async def main() -> None:
        with pytest.raises(BufferExhaustedError):
            await pool.wait_allocate(10, 0.01)
        task = asyncio.create_task(pool.wait_allocate(10, WAIT_S))
        await asyncio.sleep(0)
        assert pool.waiter_count == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert pool.available_bytes == 5
    assert pool.waiter_count == 0
