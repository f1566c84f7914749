"""Packed dead letters of a task that must do something else before it writes them, in bounded memory.

A batch may be nothing but malformed records, each with a letter of up to a megabyte. So letters wait in a
temporary database of SQLite, which is on disk as soon as it is large, and is gone with the process. They come
back in the order in which they went in. Where the disk is full the task fails, before it has written any of
them. Used by the tasks of ``earnings`` and of ``alert_tasks``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from tidelog.errors import TidelogError


class LetterSpillError(TidelogError):
    """Letters cannot wait: the disk is full, or broken."""


class LetterSpill:
    """Letters by the number of their bucket, or part."""

    def __init__(self) -> None:
        with _told():
            self._connection = sqlite3.connect("", isolation_level=None)
            self._connection.execute("CREATE TABLE letters (bucket INTEGER, packed BLOB)")
            self._connection.execute("BEGIN")

    def add(self, bucket: int, packed: bytes) -> None:
        """Take some letters."""
        with _told():
            self._connection.execute("INSERT INTO letters VALUES (?, ?)", (bucket, packed))

    def of(self, bucket: int) -> Iterator[bytes]:
        """The letters of a bucket, as they were given."""
        query = "SELECT packed FROM letters WHERE bucket = ? ORDER BY rowid"
        with _told():
            found = self._connection.execute(query, (bucket,))
            while (row := found.fetchone()) is not None:
                yield row[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connection.close()


@contextmanager
def _told() -> Iterator[None]:
    """What SQLite raises names no file, and neither does it say what to do."""
    try:
        yield
    except sqlite3.Error as failure:
        raise LetterSpillError(
            f"the dead letters of a task cannot wait in a temporary file ({failure}): make room for them in "
            "the executor's directory of such files, or name another one in SQLITE_TMPDIR"
        ) from failure
