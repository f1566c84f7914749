"""A real Cassandra that wants a login and speaks TLS alone: who gets in, its tables, exact sums."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign.cassandra import Cassandra, Guard
from tests.chaos.process_tree import descendants
from tests.compat.conftest import available
from tests.compat.earnings_in_cassandra import WAIT_S, running, totals, wait_for
from tests.integration.pipeline_traffic import EarningsTraffic, latest_states, send
from tests.rigs.tls_files import TlsFiles
from tests.rigs.waiting import wait_until

from tidelog.spark.cassandra_options import CassandraOptions, cassandra_options
from tidelog.spark.pipelines.status import last_commit
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.cassandra import CassandraTables
from tidelog.spark.sinks.cassandra_connection import (
    CassandraCluster,
    CassandraError,
    cluster_of,
    connect,
    disconnect,
)
from tidelog.spark.sinks.table import ColumnSpec, TableError, TableSpec
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards.pipelines import COLLECT
from tidelog_rewards.topics import ensure_topics

SUPERUSER = "cassandra"
"""Its password is the same."""
APP, APP_PASSWORD = "app", 'it\'s 4 secret, ünd "mehr"'
KILLS = 2

OLD = TableSpec(
    "login",
    (ColumnSpec("user_id", "string"), ColumnSpec("event_time", "time")),
    ("user_id",),
    append_only=True,
)
NEW = TableSpec(
    "login",
    (*OLD.columns, ColumnSpec("success", "boolean"), ColumnSpec("tries", "long")),
    OLD.primary_key,
    append_only=True,
)
VALUES = TableSpec("sums", (ColumnSpec("user_id", "string"), ColumnSpec("cents", "long")), ("user_id",))

Options = Callable[..., CassandraOptions]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def properties(tls: TlsFiles, user: str, password: str) -> dict[str, str]:
    return {
        "user": user,
        "password": password,
        "tls.enabled": "true",
        "tls.ca.file": str(tls.trust),
        "tls.certificate.file": str(tls.client),
        "tls.key.file": str(tls.client),
    }


@pytest.fixture(scope="module")
def options(tls: TlsFiles) -> Options:
    """The superuser's, with those that are given by names with _ for the dots; None leaves one out."""

    def made(**given: str | None) -> CassandraOptions:
        usual = properties(tls, SUPERUSER, SUPERUSER)
        named = {**usual, **{name.replace("_", "."): value for name, value in given.items()}}
        told = {name: value for name, value in named.items() if value is not None}
        return cassandra_options(told, {}, COLLECT.expiring_tables)

    return made


@pytest.fixture(scope="module")
def cassandra(
    tmp_path_factory: pytest.TempPathFactory, tls: TlsFiles, options: Options
) -> Iterator[Cassandra]:
    guard = Guard(tls.trust, tls.server, options())
    node = Cassandra(tmp_path_factory.mktemp("cassandra"), guard=guard)
    with available():
        node.start()
    yield node
    node.stop()


@pytest.fixture
def keyspace(cassandra: Cassandra, options: Options) -> Iterator[str]:
    name = f"k{uuid.uuid4().hex[:12]}"
    yield name
    session = connect(CassandraCluster.at(cassandra.contact_points, options())).session
    session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"password": "guessed"}, r"refuses the login of user cassandra: correct user, or the password"),
        ({"user": "nobody"}, r"refuses the login of user nobody"),
        ({"user": None, "password": None}, r"wants a login: set user, and password\.file"),
        ({"tls_certificate_file": None, "tls_key_file": None}, r"TLS with .* fails|does not answer"),
        ({"local_datacenter": "mars"}, r"no data centre mars .*: set local\.datacenter to datacenter1$"),
    ],
)
def test_who_should_not_get_in_is_told_why(
    cassandra: Cassandra, options: Options, given: dict[str, str | None], sentence: str
) -> None:
    with pytest.raises(CassandraError, match=sentence):
        connect(CassandraCluster.at(cassandra.contact_points, options(**given)))


def test_a_node_that_is_not_trusted_or_named_otherwise_is_refused(
    cassandra: Cassandra, options: Options, tls: TlsFiles
) -> None:
    for given in ({"tls_ca_file": str(tls.stranger)}, {"tls_ca_file": None}):
        with pytest.raises(CassandraError, match=r"certificate of Cassandra .* correct tls\.ca\.file"):
            connect(CassandraCluster.at(cassandra.contact_points, options(**given)))
    plain = cassandra_options({"user": SUPERUSER, "password": SUPERUSER}, {})
    with pytest.raises(
        CassandraError, match=r"does not answer .* correct the contact points or tls\.enabled"
    ):
        connect(CassandraCluster.at(cassandra.contact_points, plain))


def test_consistencies_are_those_of_the_options(cassandra: Cassandra, options: Options) -> None:
    from cassandra import ConsistencyLevel

    cluster = CassandraCluster.at(
        cassandra.contact_points,
        options(consistency_read="ONE", consistency_write="ALL", local_datacenter="datacenter1"),
    )
    connection = connect(cluster)
    read = connection.reading("SELECT key FROM system.local")
    write = connection.writing("SELECT key FROM system.local")
    assert (read.consistency_level, write.consistency_level) == (ConsistencyLevel.ONE, ConsistencyLevel.ALL)
    [row] = connection.session.execute(read)
    assert row == ("local",)
    disconnect(cluster)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What we have logged; the driver of Cassandra says much more."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("tidelog.")]


def test_a_keyspace_is_made_as_asked_and_tables_with_lifetime_and_windows(
    cassandra: Cassandra, options: Options, keyspace: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"replication": "SimpleStrategy:1", "ttl": "login:1h", "compaction_window": "login:6h"}
    tables = CassandraTables(cassandra.contact_points, keyspace, options(**given))
    tables.ensure(OLD)
    tables.ensure(VALUES)
    metadata = connect(
        CassandraCluster.at(cassandra.contact_points, options(**given))
    ).session.cluster.metadata
    made = metadata.keyspaces[keyspace]
    assert made.replication_strategy.export_for_schema() == (
        "{'class': 'SimpleStrategy', 'replication_factor': '1'}"
    )
    there = made.tables["login"].options
    assert there["default_time_to_live"] == 3600
    assert there["compaction"]["class"].endswith("TimeWindowCompactionStrategy")
    assert (there["compaction"]["compaction_window_size"], there["compaction"]["compaction_window_unit"]) == (
        "6",
        "HOURS",
    )
    assert made.tables["sums"].options["default_time_to_live"] == 0
    assert said(caplog) == []

    # Other wishes later: the table follows, the keyspace stays.
    other = options(replication="datacenter1:1", ttl="login:2s", compaction_window="login:1d")
    later = CassandraTables(cassandra.contact_points, keyspace, other)
    later.ensure(OLD)
    told = said(caplog)
    assert len(told) == 3
    assert "is there with replication {'class': 'SimpleStrategy', 'replication_factor': 1}" in told[0]
    later.write(OLD, [("u-1", 0)])
    later.write(VALUES, [("u-1", 5)])
    wait_until(lambda: not list(later.rows(OLD)), "the row to go")
    assert [row["cents"] for row in later.rows(VALUES)] == [5]
    later.close()


def test_columns_of_a_newer_release_are_added_by_several_drivers_at_once(
    cassandra: Cassandra, options: Options, keyspace: str
) -> None:
    old = CassandraTables(cassandra.contact_points, keyspace, options())
    old.ensure(OLD)
    old.write(OLD, [("before", 1_000)])
    failures: list[BaseException] = []

    def upgrade(number: int) -> None:
        # Other options, so that each has a connection of its own, as processes have.
        own = CassandraTables(cassandra.contact_points, keyspace, options(ttl=f"credit:{number}d"))
        try:
            own.ensure(NEW)
            own.write(NEW, [(f"u-{number}", 1_000, True, number)])
        except BaseException as failure:
            failures.append(failure)
        finally:
            own.close()

    threads = [threading.Thread(target=upgrade, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    # The older release goes on beside the newer one.
    again = CassandraTables(cassandra.contact_points, keyspace, options())
    again.ensure(OLD)
    again.write(OLD, [("after", 1_000)])
    found = {row["user_id"]: (row["success"], row["tries"]) for row in again.rows(NEW)}
    upgraded = {f"u-{number}": (True, number) for number in range(1, 5)}
    assert found == {"before": (None, None), "after": (None, None), **upgraded}
    wrong = TableSpec("login", (*OLD.columns, ColumnSpec("tries", "string")), OLD.primary_key)
    with pytest.raises(TableError, match=r"column tries of table login .* is bigint and should be text"):
        again.ensure(wrong)


def grant_app(cassandra: Cassandra, options: Options, keyspace: str, *rights: str) -> None:
    session = connect(CassandraCluster.at(cassandra.contact_points, options())).session
    password = APP_PASSWORD.replace("'", "''")
    session.execute(f"CREATE ROLE IF NOT EXISTS {APP} WITH PASSWORD = '{password}' AND LOGIN = true")
    for right in rights:
        session.execute(f"GRANT {right} ON KEYSPACE {keyspace} TO {APP}")


def test_who_may_not_make_tables_uses_those_that_are_there(
    cassandra: Cassandra, options: Options, keyspace: str
) -> None:
    CassandraTables(cassandra.contact_points, keyspace, options()).ensure(OLD)
    grant_app(cassandra, options, keyspace, "MODIFY", "SELECT")
    tables = CassandraTables(cassandra.contact_points, keyspace, options(user=APP, password=APP_PASSWORD))
    tables.ensure(OLD)
    tables.write(OLD, [("u-1", 1_000)])
    assert [row["user_id"] for row in tables.rows(OLD)] == ["u-1"]
    with pytest.raises(TableError, match=r"Cassandra refuses `CREATE TABLE .*User app has no CREATE perm"):
        tables.ensure(VALUES)
    tables.close()


def files_with(secret: str, directory: Path) -> list[Path]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if secret.encode() in path.read_bytes()]


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_totals_are_exact_after_kills_between_batches_and_the_password_is_nowhere(
    cassandra: Cassandra, options: Options, tls: TlsFiles, keyspace: str, tmp_path: Path
) -> None:
    traffic = EarningsTraffic(seed=18, users=100)
    file = tmp_path / "cassandra.properties"
    given = properties(tls, APP, APP_PASSWORD)
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()), encoding="utf-8")
    superuser = connect(CassandraCluster.at(cassandra.contact_points, options())).session
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    superuser.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")
    grant_app(cassandra, options, keyspace, "ALL")
    (tmp_path / "spark-events").mkdir()
    spark = [f"spark.eventLog.dir={(tmp_path / 'spark-events').as_uri()}"]
    spark += ["spark.eventLog.enabled=true", "spark.eventLog.compress=false"]
    more = ["--cassandra-config", str(file), *(word for each in spark for word in ("--conf", each))]
    with BrokerProcess(tmp_path / "broker") as server:
        own = PipelineSettings(
            server.bootstrap,
            tmp_path / "pipelines",
            cassandra=cassandra.contact_points,
            keyspace=keyspace,
            cassandra_options=cassandra_options(given, {}, COLLECT.expiring_tables),
        )
        ensure_topics(own, partitions=2)
        checkpoint = own.checkpoint("earnings")
        for _ in range(KILLS):
            send(server.bootstrap, traffic.shuffled([*traffic.fresh(2000), *traffic.again(200)]))
            done = last_commit(checkpoint)
            with running(own, "--trigger", "0 seconds", "--max-offsets-per-trigger", "400", *more) as process:
                wait_for(process, lambda done=done: last_commit(checkpoint) != done)  # type: ignore[misc]
                commands = [member.command for member in descendants(process.pid)]
                os.killpg(process.pid, signal.SIGKILL)
            assert not [command for command in commands if APP_PASSWORD in command]
        with running(own, "--once", *more) as process:
            assert process.wait(WAIT_S) == 0
        assert totals(own) == dict(traffic.cents)
        states = latest_states(server.bootstrap)
        assert {user: state["total_cents"] for user, state in states.items()} == dict(traffic.cents)
        for directory in (own.directory, tmp_path / "spark-events"):
            assert files_with(APP_PASSWORD, directory) == []
    disconnect(cluster_of(own))
