"""What a store of the ledger must do, so that a part's task knows neither SQLite nor Cassandra.

What makes earnings exact: **the derived tables are a function of the set of entries**. ``merge`` puts entries
into the ledger, where an entry that is already there changes nothing, and computes the rows that depend on
them anew from the ledger. So a batch that is replayed, an event that is delivered again, another
order, a crash at any point and a backfill over days that the stream has seen all end in the same tables.
There is no watermark: an event counts however late it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from tidelog_rewards.jobs.earnings.schema import Credit, TaskStep, UserEarnings

if TYPE_CHECKING:
    from tidelog.spark.settings import PipelineSettings
    from tidelog_rewards.jobs.earnings.parts import LedgerParts


class Ledger(Protocol):
    """Keeps entries and what follows from them, of all users or of those of a part; for one thread."""

    excludes_others: bool
    """Whether :meth:`turn` holds everybody else off."""

    def merge(self, credits: Sequence[Credit], steps: Sequence[TaskStep]) -> list[UserEarnings]:
        """Put entries in and bring the derived tables up to date; durable when it returns.

        Returns the states of all users that the entries name, whether they changed or not: what a crash
        kept from the topic is then published by the replay.
        """
        ...

    def recompute(self, start: str, end: str) -> Iterator[list[UserEarnings]]:
        """Derive anew whatever entries from ``start`` to before ``end`` bear on: whole days, and tasks.

        Yields the states of the users concerned, chunk by chunk.
        """
        ...

    def turn(self) -> AbstractContextManager[None]:
        """Holds other users of this store off, so that a state is published before a newer one is merged."""
        ...

    def newer_than(self, states: Sequence[UserEarnings]) -> list[UserEarnings]:
        """What has become of the states that others have changed since; asked when ``states`` are published.

        Whoever publishes last then publishes the newest. Empty where :meth:`turn` holds others off.
        """
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


def open_ledger(settings: PipelineSettings, parts: LedgerParts, part: int) -> Ledger:
    """The ledger of a part in a task: its SQLite file, or Cassandra, where all parts are one.

    :raises TableError: the files are on another machine.
    """
    if settings.cassandra is None:
        from tidelog.spark.sinks.sqlite import refuse_other_host
        from tidelog_rewards.jobs.earnings.sqlite_ledger import opened

        # States of a ledger that is empty would be published over those that are right.
        refuse_other_host(parts.host, "the ledger of earnings")
        return opened(parts.file(part))
    from tidelog_rewards.jobs.earnings.cassandra_ledger import CassandraLedger

    return CassandraLedger(settings)


def prepare_ledger(settings: PipelineSettings) -> None:
    """Make the tables that tasks take for granted; an unreachable store is told of here, once."""
    if settings.cassandra is not None:
        from tidelog_rewards.jobs.earnings.cassandra_ledger import CassandraLedger

        CassandraLedger(settings).ensure()
