"""The process that compacts: ``python -m tidelog.storage.cleaner.cleaner_worker``, started when needed.

Compaction is long Python work, and a busy thread beside the broker's loop would ruin it, so it runs here. The
broker writes one :class:`CompactionJob` per line to standard input and reads groups, and then the end or the
failure of the job, one JSON message per line, from standard output. It ends the process by closing its input
or by killing it: nothing is lost but ``.cleaned`` files. When the broker dies its end of the pipe closes too,
and the process exits at once, so that it never writes beside a broker that has been started again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, Final, Literal

import msgspec

from tidelog.errors import StorageError
from tidelog.storage.cleaner.compaction import (
    BatchSkipped,
    CleanedGroup,
    CompactionDone,
    CompactionJob,
    compact,
)
from tidelog.storage.disk import is_out_of_files

_NICENESS: Final = 5
_MIN_PAUSE_S: Final = 0.01


class CompactionFailed(msgspec.Struct, frozen=True, tag="failed", kw_only=True):
    """Why a job could not be finished: the ``log`` cannot be cleaned, the ``disk`` does not let us, or the
    process may open no more ``files``."""

    cause: Literal["log", "disk", "files"]
    message: str


CompactionEvent = CleanedGroup | BatchSkipped | CompactionDone | CompactionFailed

_job_decoder: Final = msgspec.json.Decoder(CompactionJob)
event_decoder: Final = msgspec.json.Decoder(CompactionEvent)


class Throttle:
    """Sleeps as needed to keep a rate; for ``log.cleaner.io.max.bytes.per.second``."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._owed_s = 0.0
        self._since = time.monotonic()

    def __call__(self, size: int) -> None:
        now = time.monotonic()
        self._owed_s = max(self._owed_s - (now - self._since), 0.0) + size / self._bytes_per_second
        self._since = now
        if self._owed_s > _MIN_PAUSE_S:
            time.sleep(self._owed_s)


def run_job(job: CompactionJob, send: Callable[[CompactionEvent], None]) -> None:
    """Run one pass and send what becomes of it; every failure is sent, none is raised."""
    pace = Throttle(job.max_bytes_per_second) if job.max_bytes_per_second else _no_pace
    try:
        for event in compact(job, pace):
            send(event)
    except OSError as error:
        cause: Literal["disk", "files"] = "files" if is_out_of_files(error) else "disk"
        send(CompactionFailed(cause=cause, message=str(error)))
    except StorageError as error:
        send(CompactionFailed(cause="log", message=str(error)))
    except Exception as error:  # a fault of ours in one log must not stop the cleaning of the others
        send(CompactionFailed(cause="log", message=f"{type(error).__name__}: {error}"))


def _no_pace(_size: int) -> None:
    return


def _read_jobs(source: BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    for line in source:
        jobs.put(line)
    os._exit(0)


def main() -> None:
    """Take jobs from standard input until it is closed."""
    # Whatever a library prints must not get between the messages.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)

    def send(event: CompactionEvent) -> None:
        output.write(msgspec.json.encode(event) + b"\n")
        output.flush()

    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        run_job(_job_decoder.decode(jobs.get()), send)


if __name__ == "__main__":
    main()
