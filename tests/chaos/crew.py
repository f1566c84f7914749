"""Writers that work at the same time, each in a thread, while a scenario does its harm."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from tests.chaos.clients import WAIT_S, Writer, wait_until

Work = Callable[[threading.Event], None]


class Crew:
    """Threads that repeat their work until the crew is dismissed; the first failure is raised then."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> Crew:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S * 2)
            assert not thread.is_alive(), "a worker hangs"
        if self.failures and kind is None:
            raise self.failures[0]

    def _run(self, work: Work) -> None:
        try:
            while not self._stop.is_set():
                work(self._stop)
        except BaseException as failure:
            self.failures.append(failure)


def numbered(writer: Writer, per_batch: int = 3, size: int = 0) -> Work:
    """Write batches of numbered values, padded to ``size`` bytes."""

    def work(_: threading.Event) -> None:
        first = len(writer.written)
        writer.write([(b"%d " % (first + n)).ljust(size, b".") for n in range(per_batch)])

    return work


def wait_for_more(crew: Crew, writers: Sequence[Writer], records: int) -> None:
    """Wait until the writers have together written so many more records."""
    goal = sum(len(writer.written) for writer in writers) + records

    def reached() -> bool:
        if crew.failures:
            raise crew.failures[0]
        return sum(len(writer.written) for writer in writers) >= goal

    wait_until(f"{records} more acknowledged records", reached)
