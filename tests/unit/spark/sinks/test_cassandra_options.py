"""What people may say about Cassandra, and what is refused, in one sentence, before anything is started."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tidelog.errors import ConfigError
from tidelog.spark.cassandra_options import (
    OPTIONS,
    PASSWORD_VARIABLE,
    CassandraOptions,
    Replication,
    Window,
    cassandra_options,
    check_keyspace,
)
from tidelog.spark.pipelines import registry
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.jobs.collect.schema import TABLES

SECRET = "correct horse"
EVENT_TABLES = registry.load("collect").expiring_tables


def parsed(environment: dict[str, str] | None = None, **given: str) -> CassandraOptions:
    """Options by names with _ for the dots."""
    return cassandra_options(
        {name.replace("_", "."): text for name, text in given.items()}, environment or {}, EVENT_TABLES
    )


def test_nothing_said_is_no_login_and_quorums_of_the_data_centre() -> None:
    assert parsed() == CassandraOptions()
    assert (CassandraOptions().read_consistency, CassandraOptions().write_consistency) == (
        "LOCAL_QUORUM",
        "LOCAL_QUORUM",
    )


def test_the_password_comes_from_a_file_or_the_environment_or_the_file_of_options(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\nsecond line\n")
    ways = (
        parsed(user="app", password_file=str(file)),
        parsed({PASSWORD_VARIABLE: SECRET}, user="app"),
        parsed(user="app", password=SECRET),
    )
    assert [(options.user, options.password) for options in ways] == [("app", SECRET)] * 3
    # Somebody's password in the environment does not log in those who name no user.
    assert parsed({PASSWORD_VARIABLE: SECRET}).password is None


def test_the_password_is_shown_nowhere_and_reaches_tasks(tmp_path: Path) -> None:
    options = parsed(user="app", password=SECRET)
    settings = PipelineSettings("", tmp_path, cassandra="db", cassandra_options=options)
    assert SECRET not in repr(options) + str(options) + repr(settings)
    assert pickle.loads(pickle.dumps(settings)).cassandra_options.password == SECRET


def test_values_are_read_as_what_they_are(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.write_text("-----")
    options = parsed(
        tls_enabled="true", tls_ca_file=str(pem), tls_certificate_file=str(pem), tls_key_file=str(pem),
        tls_check_hostname="false", consistency_read="QUORUM", consistency_write="QUORUM",
        local_datacenter="west", replication="west:3, east:2", ttl="login:30d,exposure:12h",
        compaction_window="6h",
    )  # fmt: skip
    assert (options.tls, options.check_hostname, options.ca_file) == (True, False, str(pem))
    assert (options.certificate_file, options.key_file) == (str(pem), str(pem))
    assert options.replication == Replication("NetworkTopologyStrategy", (("east", 2), ("west", 3)))
    assert options.replication.cql == "{'class': 'NetworkTopologyStrategy', 'east': 2, 'west': 3}"
    assert (options.ttl_of("login"), options.ttl_of("exposure")) == (30 * 86_400, 43_200)
    assert (options.ttl_of("credit"), options.ttl_of("user_credits")) == (None, None)
    assert {options.window_of(table) for table in EVENT_TABLES} == {Window(6, "HOURS")}
    assert options.window_of("user_earnings") is None
    simple = parsed(replication="SimpleStrategy:2").replication
    assert simple is not None
    assert simple.cql == "{'class': 'SimpleStrategy', 'replication_factor': 2}"


def test_files_are_named_absolutely_since_tasks_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("-----")
    monkeypatch.chdir(tmp_path)
    assert parsed(tls_enabled="true", tls_ca_file="ca.pem").ca_file == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"usr": "app"}, "there is no option 'usr' for Cassandra; did you mean user?"),
        ({"user": "app"}, f"of Cassandra has no password: set password.file, or {PASSWORD_VARIABLE}"),
        ({"password": SECRET}, "a password for Cassandra is given without a user: set user"),
        ({"user": "app", "password.file": "/nowhere/at/all"}, "password.file /nowhere/at/all cannot be read"),
        ({"user": "app", "password": SECRET, "password.file": "x"}, "are both given: keep one of them"),
        ({"tls.check.hostname": "false"}, "tls.check.hostname has no effect without TLS: set tls.enabled"),
        ({"tls.enabled": "true", "tls.ca.file": "/nowhere/ca.pem"}, "tls.ca.file /nowhere/ca.pem cannot be"),
        ({"tls.enabled": "yes"}, "tls.enabled: Expected value to be either true or false"),
        ({"consistency.read": "SOME"}, "consistency.read: String must be one of: LOCAL_ONE, ONE"),
        ({"consistency.write": "ANY"}, "consistency.write: String must be one of: ALL, EACH_QUORUM"),
        ({"consistency.read": "EACH_QUORUM"}, "consistency.read: String must be one of"),
        ({"replication": "3"}, "replication: write dc1:3,dc2:2, or SimpleStrategy:2"),
        ({"replication": "dc1:0"}, "replication: write dc1:3"),
        ({"replication": "dc1:2,dc1:3"}, "replication: write dc1:3"),
        ({"replication": "SimpleStrategy:2,dc1:3"}, "replication: write dc1:3"),
        ({"replication": "x', 'y:1"}, "replication: write dc1:3"),
        ({"ttl": "user_credits:30d"}, "ttl: rows of table user_credits must stay; those of credit,"),
        ({"ttl": "user_regions:30d"}, "ttl: rows of table user_regions must stay"),
        ({"ttl": "soon"}, "ttl: write a time of at most 20 years"),
        ({"ttl": "21000d"}, "ttl: write a time of at most 20 years"),
        ({"ttl": "30d,login:1d"}, "ttl: name the table, as in login:30d, or give one value for all"),
        ({"ttl": "login:1d,login:2d"}, "ttl: a table is named twice"),
        ({"compaction.window": "30s"}, "compaction.window: write a window, as 30m, 6h or 1d"),
        ({"compaction.window": "user_tasks:1d"}, "compaction.window: rows of table user_tasks must stay"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_in_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cassandra_options(given, {}, EVENT_TABLES)
    assert sentence in str(refused.value)
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_certificate_without_a_key_is_refused(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.write_text("-----")
    with pytest.raises(ConfigError, match="belong together: set both or none"):
        parsed(tls_enabled="true", tls_certificate_file=str(pem))


def test_an_empty_password_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch()
    with pytest.raises(ConfigError, match="is empty: write the password into its first line"):
        parsed(user="app", password_file=str(file))


@pytest.mark.parametrize(
    ("write", "reads"),
    [
        ("LOCAL_QUORUM", {"LOCAL_QUORUM", "ALL"}),
        ("QUORUM", {"QUORUM", "ALL"}),
        ("EACH_QUORUM", {"LOCAL_QUORUM", "QUORUM", "ALL"}),
        ("ONE", {"ALL"}),
        ("LOCAL_ONE", {"ALL"}),
        ("ALL", {"LOCAL_ONE", "ONE", "TWO", "THREE", "LOCAL_QUORUM", "QUORUM", "ALL"}),
    ],
)
def test_a_ledger_takes_consistencies_with_which_it_reads_what_it_wrote(
    tmp_path: Path, write: str, reads: set[str]
) -> None:
    earnings, collect = registry.load("earnings"), registry.load("collect")
    taken = set()
    for read in ("LOCAL_ONE", "ONE", "TWO", "THREE", "LOCAL_QUORUM", "QUORUM", "ALL"):
        options = parsed(consistency_read=read, consistency_write=write)
        settings = PipelineSettings("", tmp_path, cassandra="db", cassandra_options=options)
        # Events are written and not read back.
        collect.check(settings)
        try:
            earnings.check(settings)
        except ConfigError as refused:
            assert f"consistency.read={read} may miss" in str(refused)  # noqa: PT017
        else:
            taken.add(read)
    assert taken == reads


def test_rows_of_the_tables_of_collect_may_go_and_of_no_others() -> None:
    assert tuple(table.name for table in TABLES) == EVENT_TABLES
    assert all(table.append_only for table in TABLES)


def test_every_option_is_documented_and_none_has_a_secret_default() -> None:
    assert all(option.doc.endswith(".") for option in OPTIONS.values())
    assert [name for name, option in OPTIONS.items() if option.sensitive] == ["password"]


@pytest.mark.parametrize("keyspace", ["", "1st", 'x" WITH', "a-b", "k" * 49])
def test_what_is_no_keyspace_is_refused(keyspace: str) -> None:
    with pytest.raises(ConfigError, match="is no keyspace of Cassandra"):
        check_keyspace(keyspace)
