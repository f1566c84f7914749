"""Runs a record reader of the user's own in a thread, and hands its records to the event loop.

The thread is at most ``_AHEAD`` records ahead. It is a daemon: one that waits for input must not keep the
command from ending.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import BinaryIO

from tidelog.cli.failure import Failure
from tidelog.client.record_reader import InputRecord, RecordReader
from tidelog.custom_class import make_custom

_AHEAD = 1000


def custom_reader(name: str, properties: Mapping[str, str]) -> RecordReader:
    """The reader of the class ``name``, configured; a failure is one sentence."""
    reader = make_custom("--reader", name, RecordReader)
    try:
        reader.configure(properties)
    except (Exception, SystemExit) as error:
        raise Failure(
            f"--reader: {name} rejected its properties ({type(error).__name__}: {error})"
        ) from error
    return reader


class ReaderError(Exception):
    """The reader has failed; the text says how."""


async def records_of(reader: RecordReader, fd: int) -> AsyncIterator[InputRecord]:
    """What ``reader`` yields from the file ``fd``; what it raises is raised behind the records before it."""
    # A file of its own: nothing else may wait for a lock that the thread holds while it waits for input.
    reading = _Reading(reader, os.dup(fd), asyncio.get_running_loop())
    threading.Thread(target=reading.run, name="record-reader", daemon=True).start()
    try:
        while True:
            await reading.something.wait()
            reading.something.clear()
            ended = reading.ended
            while reading.records:
                record = reading.records.popleft()
                reading.room.release()
                yield record
            if ended:
                break
    finally:
        reading.given_up = True
        reading.room.release()
    if reading.error is not None:
        # Not SystemExit itself, which would end the event loop.
        error = reading.error
        raise ReaderError(f"{type(error).__name__}: {error}") from error


def _check(record: InputRecord) -> None:
    """Refuse a record that cannot be sent, while the reader that made it can be named."""
    for name in ("value", "key"):
        found = getattr(record, name)
        if not isinstance(found, bytes | None):
            raise TypeError(f"{name} of an InputRecord must be bytes or None, got {type(found).__name__}")
    for name in ("partition", "timestamp"):
        found = getattr(record, name)
        if not isinstance(found, int | None):
            raise TypeError(f"{name} of an InputRecord must be an int or None, got {type(found).__name__}")
    for header in record.headers if isinstance(record.headers, list | tuple) else (record.headers,):
        match header:
            case (str(), bytes() | None):
                continue
        raise TypeError(
            f"headers of an InputRecord must be a list of (name, bytes) pairs, got {header!r:.80}"
        )


class _Reading:
    """What the thread and the loop share."""

    def __init__(self, reader: RecordReader, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self.records: deque[InputRecord] = deque()
        self.room = threading.Semaphore(_AHEAD)
        self.something = asyncio.Event()
        self.ended = False
        self.given_up = False
        self.error: Exception | SystemExit | None = None
        self._reader = reader
        self._fd = fd
        self._loop = loop

    def run(self) -> None:
        """In the thread."""
        try:
            with os.fdopen(self._fd, "rb") as stream:
                self._read(stream)
        except (Exception, SystemExit) as error:
            self.error = error
        finally:
            self.ended = True
            self._notify()

    def _read(self, stream: BinaryIO) -> None:
        try:
            for record in self._reader.read(stream):
                self.room.acquire()
                if self.given_up:
                    break
                if not isinstance(record, InputRecord):
                    raise TypeError(f"read() yielded a {type(record).__name__}, not an InputRecord")
                _check(record)
                self.records.append(record)
                self._notify()
        finally:
            self._reader.close()

    def _notify(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.something.set)
        except RuntimeError:
            # The loop is closed: the command has ended without what is left.
            self.given_up = True
