"""Keys of what is to be derived anew, gathered in any order and given back by user, in bounded memory.

A store that cannot tell them in the order of users (Cassandra) tells them in its own, and a range of time may
touch every user there is. So they wait in a temporary database of SQLite, which is on disk as soon as it is
large, and is gone with the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self


class Touched(NamedTuple):
    """A day of a user, or a task of one: the other is empty."""

    user_id: str
    day: str
    task_id: str


class TouchedUsers(NamedTuple):
    """What is to be derived anew of some users."""

    days: list[tuple[str, str]]
    tasks: list[tuple[str, str]]


class KeySpill:
    """Gathers keys; each is there once."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.execute(
            "CREATE TABLE touched (user_id TEXT, day TEXT, task_id TEXT, "
            "PRIMARY KEY (user_id, day, task_id)) WITHOUT ROWID"
        )
        self._connection.execute("BEGIN")

    def add(self, keys: Iterable[Touched | tuple[str, str, str]]) -> None:
        """Take keys."""
        self._connection.executemany("INSERT OR IGNORE INTO touched VALUES (?, ?, ?)", keys)

    def chunks(self, users: int) -> Iterator[TouchedUsers]:
        """The keys of so many users after the other, each user in one chunk."""
        chunk, named, last = TouchedUsers([], []), 0, None
        for user_id, day, task_id in self._connection.execute("SELECT * FROM touched ORDER BY user_id"):
            if user_id != last:
                if named == users:
                    yield chunk
                    chunk, named = TouchedUsers([], []), 0
                named, last = named + 1, user_id
            if day:
                chunk.days.append((user_id, day))
            else:
                chunk.tasks.append((user_id, task_id))
        if named:
            yield chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connection.close()
