"""Keyspace and tables in Cassandra, against a session that keeps a schema in memory.

``tests/compat/test_cassandra_guarded.py`` does the same with a real one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.spark.cassandra_options import CassandraOptions, cassandra_options
from tidelog.spark.sinks.cassandra_schema import CassandraSchema
from tidelog.spark.sinks.table import ColumnSpec, TableError, TableSpec

cassandra = pytest.importorskip("cassandra")

EVENTS = TableSpec(
    "login",
    (ColumnSpec("user_id", "string"), ColumnSpec("event_time", "time"), ColumnSpec("success", "boolean")),
    ("user_id", "event_time"),
    append_only=True,
)
SUMS = TableSpec("sums", (ColumnSpec("user_id", "string"), ColumnSpec("cents", "long")), ("user_id",))


@dataclass
class Session:
    """Understands the statements that are sent, and the metadata that are asked for."""

    datacenters: tuple[str, ...] = ("dc1",)
    agrees: bool = True
    statements: list[str] = field(default_factory=list)
    refuse: str = ""
    """Statements that contain this are refused."""
    overtaken: bool = False
    """Somebody else does what is refused, just before."""

    def __post_init__(self) -> None:
        hosts = [SimpleNamespace(datacenter=name) for name in self.datacenters]
        self.keyspaces: dict[str, Any] = {}
        self.cluster = SimpleNamespace(
            metadata=SimpleNamespace(all_hosts=lambda: hosts, keyspaces=self.keyspaces),
            refresh_keyspace_metadata=lambda keyspace: None,
            refresh_table_metadata=lambda keyspace, table: None,
        )

    def execute_async(self, text: str, timeout: float) -> Any:
        refused = bool(self.refuse) and self.refuse in text
        if not refused or self.overtaken:
            self._apply(text)
            self.statements.append(text)

        def result() -> None:
            if refused:
                raise cassandra.InvalidRequest("already there, or wrong")

        return SimpleNamespace(result=result, is_schema_agreed=self.agrees)

    def _apply(self, text: str) -> None:
        if made := re.fullmatch(
            r'CREATE KEYSPACE IF NOT EXISTS "(\w+)" WITH replication = \{\'class\': \'(\w+)\', (.+)\}', text
        ):
            factors = dict(re.findall(r"'(\w+)': (\d+)", made[3]))
            strategy = SimpleNamespace(name=made[2], dc_replication_factors=factors)
            self.keyspaces[made[1]] = SimpleNamespace(tables={}, replication_strategy=strategy)
        elif made := re.fullmatch(
            r'CREATE TABLE IF NOT EXISTS "(\w+)"\.(\w+) '
            r"\((.+), PRIMARY KEY \(\((.+?)\)(?:, )?(.*?)\)\)( .+)?",
            text,
        ):
            columns = dict(each.split(" ") for each in made[3].split(", "))
            partition, clustering = made[4].split(", "), made[5].split(", ") if made[5] else []
            self.put(made[1], made[2], columns, partition, clustering)
            self._set(self.keyspaces[made[1]].tables[made[2]], made[6] or "")
        elif made := re.fullmatch(r'ALTER TABLE "(\w+)"\.(\w+) ADD (\w+) (\w+)', text):
            self.keyspaces[made[1]].tables[made[2]].columns[made[3]] = SimpleNamespace(cql_type=made[4])
        elif made := re.fullmatch(r'ALTER TABLE "(\w+)"\.(\w+)( WITH .+)', text):
            self._set(self.keyspaces[made[1]].tables[made[2]], made[3])
        else:
            raise AssertionError(text)

    def put(
        self, keyspace: str, table: str, columns: dict[str, str], partition: list[str], clustering: list[str]
    ) -> Any:
        named = [SimpleNamespace(name=name) for name in (*partition, *clustering)]
        made = SimpleNamespace(
            columns={name: SimpleNamespace(cql_type=kind) for name, kind in columns.items()},
            partition_key=named[: len(partition)],
            primary_key=named,
            options={
                "default_time_to_live": 0,
                "compaction": {"class": "org.x.SizeTieredCompactionStrategy"},
            },
        )
        self.keyspaces[keyspace].tables[table] = made
        return made

    def _set(self, table: Any, wishes: str) -> None:
        if ttl := re.search(r"default_time_to_live = (\d+)", wishes):
            table.options["default_time_to_live"] = int(ttl[1])
        if compaction := re.search(r"compaction = \{(.+?)\}", wishes):
            given = dict(re.findall(r"'(\w+)': '?(\w+)'?", compaction[1]))
            table.options["compaction"] = {**given, "class": f"org.x.{given['class']}"}


def schema(**given: str) -> CassandraSchema:
    options = {name.replace("_", "."): text for name, text in given.items()}
    return CassandraSchema("k", cassandra_options(options, {}, ("login", "exposure")))


def test_what_is_missing_is_made_once() -> None:
    session = Session(("dc1", "dc1", "dc2", "dc1", "dc1"))
    for _ in range(2):
        schema().ensure(session, EVENTS)
    assert session.statements == [
        "CREATE KEYSPACE IF NOT EXISTS \"k\" WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'dc1': 3, 'dc2': 1}",
        'CREATE TABLE IF NOT EXISTS "k".login (user_id text, event_time timestamp, success boolean, '
        "PRIMARY KEY ((user_id), event_time))",
    ]  # fmt: skip


def test_options_are_part_of_a_new_table_and_keyspace() -> None:
    session = Session()
    wanted = schema(replication="SimpleStrategy:2", ttl="login:30d", compaction_window="1d")
    wanted.ensure(session, EVENTS)
    wanted.ensure(session, SUMS)
    assert session.statements[0].endswith("{'class': 'SimpleStrategy', 'replication_factor': 2}")
    assert session.statements[1].endswith(
        " WITH default_time_to_live = 2592000 AND compaction = {'class': 'TimeWindowCompactionStrategy', "
        "'compaction_window_unit': 'DAYS', 'compaction_window_size': 1}"
    )
    assert "WITH" not in session.statements[2]


def test_options_change_a_table_that_is_there_and_only_where_it_differs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session()
    schema().ensure(session, EVENTS)
    for _ in range(2):
        schema(ttl="1h", compaction_window="6h").ensure(session, EVENTS)
    assert [text.partition(" WITH ")[2][:20] for text in session.statements[2:]] == [
        "default_time_to_live",
        "compaction = {'class",
    ]
    assert 'rows of table "k".login that are written from now on go after 3600 s' in caplog.text
    # What is not said any more stays as it is.
    schema().ensure(session, EVENTS)
    assert len(session.statements) == 4


def test_a_keyspace_with_another_replication_is_left_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    session = Session()
    schema(replication="dc1:1").ensure(session, EVENTS)
    made = list(session.statements)
    schema(replication="dc1:1").ensure(session, EVENTS)
    assert caplog.text == ""
    other = schema(replication="dc1:3")
    for _ in range(2):
        other.ensure(session, EVENTS)
    assert session.statements == made
    assert caplog.text.count("keyspace k is there with replication") == 1


def test_a_column_of_a_newer_release_is_added(caplog: pytest.LogCaptureFixture) -> None:
    session = Session()
    schema().ensure(session, TableSpec("login", EVENTS.columns[:2], EVENTS.primary_key, append_only=True))
    newer = TableSpec("login", (*EVENTS.columns, ColumnSpec("tries", "long")), EVENTS.primary_key)
    for _ in range(2):
        schema().ensure(session, newer)
    assert session.statements[2:] == [
        'ALTER TABLE "k".login ADD success boolean',
        'ALTER TABLE "k".login ADD tries bigint',
    ]
    assert 'column tries was added to table "k".login' in caplog.text
    # The older release goes on with what it knows.
    schema().ensure(session, EVENTS)
    assert len(session.statements) == 4


def test_of_two_that_add_a_column_the_second_finds_it_there() -> None:
    session = Session()
    schema().ensure(session, TableSpec("login", EVENTS.columns[:2], EVENTS.primary_key, append_only=True))
    session.refuse, session.overtaken = "ADD success", True
    schema().ensure(session, EVENTS)
    assert set(session.keyspaces["k"].tables["login"].columns) == set(EVENTS.names)


def test_a_column_that_cannot_be_added_is_told_of() -> None:
    session = Session()
    schema().ensure(session, TableSpec("login", EVENTS.columns[:2], EVENTS.primary_key, append_only=True))
    session.refuse = "ADD success"
    with pytest.raises(TableError, match=r'Cassandra refuses `ALTER TABLE "k"\.login ADD success boolean`'):
        schema().ensure(session, EVENTS)


def test_a_column_of_another_type_is_refused_with_the_way_out() -> None:
    session = Session()
    schema().ensure(session, SUMS)
    session.put("k", "sums", {"user_id": "text", "cents": "text"}, ["user_id"], [])
    with pytest.raises(TableError, match=r"column cents of table sums .* is text and should be bigint.*drop"):
        schema().ensure(session, SUMS)


@pytest.mark.parametrize(
    ("partition", "clustering"),
    [(["user_id", "event_time"], []), (["user_id"], []), (["event_time"], ["user_id"])],
)
def test_another_key_is_refused_with_the_way_out(partition: list[str], clustering: list[str]) -> None:
    session = Session()
    schema().ensure(session, SUMS)
    columns = {"user_id": "text", "event_time": "timestamp", "success": "boolean"}
    session.put("k", "login", columns, partition, clustering)
    with pytest.raises(TableError, match=r"another primary key than \(\(user_id\), event_time\): drop"):
        schema().ensure(session, EVENTS)


def test_a_table_of_values_whose_rows_go_is_refused() -> None:
    session = Session()
    schema().ensure(session, SUMS)
    session.keyspaces["k"].tables["sums"].options["default_time_to_live"] = 60
    with pytest.raises(TableError, match=r'rows of table "k"\.sums go after 60 s, and must stay'):
        schema().ensure(session, SUMS)


def test_nodes_that_do_not_agree_are_told_of() -> None:
    with pytest.raises(TableError, match="do not agree on the schema"):
        CassandraSchema("k", CassandraOptions()).ensure(Session(agrees=False), EVENTS)
