"""What the tables in Cassandra hold when a run has ended, read from there and held to the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog_rewards import events
from tidelog_rewards.demo.panels import money
from tidelog_rewards.jobs.earnings.schema import TABLES as EARNINGS

TABLES = (*(kind.name for kind in events.LOGS), "user_regions", *EARNINGS)
TOP = 3


@dataclass(frozen=True, slots=True)
class TableFigures:
    """The rows of each table that is there, and the cents of each user."""

    contact_points: str
    keyspace: str
    rows: Mapping[str, int]
    cents: Mapping[str, int]

    def sentences(self, paid: Mapping[str, int]) -> list[str]:
        """For the summary; ``paid`` are the cents that each user should have."""
        counts = ", ".join(f"{table} {count:,}" for table, count in self.rows.items())
        lines = [f"Cassandra at {self.contact_points}, rows in keyspace {self.keyspace}: {counts}"]
        if self.cents:
            richest = sorted(self.cents.items(), key=lambda item: (-item[1], item[0]))[:TOP]
            top = ", ".join(f"{user} {money(cents)}" for user, cents in richest)
            lines.append(f"Cassandra's user_earnings: top earners {top}")
        if paid:
            wrong = [user for user in {*paid, *self.cents} if self.cents.get(user, 0) != paid.get(user, 0)]
            said = (
                f"{len(wrong):,} of {len(paid):,} users differ from what was paid to them"
                if wrong
                else f"all {len(paid):,} users have exactly the cents that were paid to them"
            )
            lines.append(f"Cassandra's user_earnings: {said}")
        return lines


def read_tables(contact_points: str, keyspace: str) -> TableFigures:
    """Read them; raises one sentence where Cassandra does not answer any more."""
    from tidelog.spark.sinks.cassandra_connection import (
        CassandraCluster,
        CassandraError,
        connect,
        disconnect,
        first_error,
    )

    cluster = CassandraCluster.at(contact_points)
    session = connect(cluster).session  # Which says what is missing, the driver for example.
    from cassandra.cluster import NoHostAvailable

    from cassandra import DriverException

    try:
        there = session.cluster.metadata.keyspaces.get(keyspace)
        names = [name for name in TABLES if there is not None and name in there.tables]
        rows = {
            name: int(session.execute(f'SELECT count(*) FROM "{keyspace}".{name}', timeout=None).one()[0])
            for name in names
        }
        query = f'SELECT user_id, total_cents FROM "{keyspace}".user_earnings'
        cents = dict(session.execute(query, timeout=None)) if "user_earnings" in names else {}
        return TableFigures(contact_points, keyspace, rows, cents)
    except (DriverException, NoHostAvailable) as failure:
        raise CassandraError(
            f"the tables cannot be read from Cassandra at {contact_points}: {first_error(failure)}"
        ) from failure
    finally:
        disconnect(cluster)
