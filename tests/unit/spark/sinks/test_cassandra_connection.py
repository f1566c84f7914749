"""What a connection to Cassandra refuses and repeats, without a Cassandra."""

from __future__ import annotations

import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rigs.tls_files import TlsFiles, encrypted_pkcs8

from tidelog.spark.cassandra_options import CassandraOptions
from tidelog.spark.sinks import cassandra_connection
from tidelog.spark.sinks.cassandra_connection import (
    SCHEMA_ATTEMPTS,
    CassandraCluster,
    CassandraError,
    Connection,
    _check_datacenter,
    _unreachable,
    tls_context,
)

cassandra = pytest.importorskip("cassandra")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassandra_connection, "FIRST_PAUSE_S", 0.0)


def test_the_context_of_tls_trusts_and_shows_what_the_options_say(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    context = tls_context(
        CassandraOptions(
            tls=True,
            ca_file=str(files.trust),
            certificate_file=str(files.client),
            key_file=str(files.client),
            check_hostname=False,
        )
    )
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert context.cert_store_stats()["x509_ca"] == 1
    assert tls_context(CassandraOptions(tls=True, ca_file=str(files.trust))).check_hostname


def test_files_that_are_no_use_are_named(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    issued = files.authority.issue("locked")
    locked = files.write("locked.pem", encrypted_pkcs8(issued, "geheim") + issued.certificate_pem)
    nothing = files.write("nothing.pem", "nothing")
    with pytest.raises(
        CassandraError, match=r"tls\.ca\.file .*nothing\.pem cannot be used on .* must have PEM"
    ):
        tls_context(CassandraOptions(tls=True, ca_file=str(nothing)))
    with pytest.raises(CassandraError, match=r"tls\.ca\.file /nowhere/ca\.pem cannot be used"):
        tls_context(CassandraOptions(tls=True, ca_file="/nowhere/ca.pem"))
    for pair in (nothing, locked):
        with pytest.raises(CassandraError, match=r"tls\.certificate\.file .* without a password there"):
            tls_context(CassandraOptions(tls=True, certificate_file=str(pair), key_file=str(pair)))


@pytest.mark.parametrize(
    ("there", "wanted", "sentence"),
    [
        (("east", "west"), "mars", "no data centre mars of Cassandra: set local.datacenter to east or west"),
        (("east", "west", "east"), None, "has 2 data centres: set local.datacenter to east or west"),
        (("east", "west"), "west", ""),
        (("east", "east"), None, ""),
        ((), "mars", ""),
    ],
)  # fmt: skip
def test_the_data_centre_must_be_there_and_known(
    there: tuple[str, ...], wanted: str | None, sentence: str
) -> None:
    hosts = [SimpleNamespace(datacenter=name) for name in there]
    cluster: Any = SimpleNamespace(metadata=SimpleNamespace(all_hosts=lambda: hosts))
    options = CassandraOptions(local_datacenter=wanted)
    if not sentence:
        _check_datacenter(cluster, options)
        return
    with pytest.raises(CassandraError) as refused:
        _check_datacenter(cluster, options)
    assert str(refused.value).endswith(sentence)


@pytest.mark.parametrize(
    ("error", "user", "sentence"),
    [
        (cassandra.AuthenticationFailed("x"), None, "wants a login: set user, and password.file or TIDELOG_"),
        (cassandra.AuthenticationFailed("x"), "app", "refuses the login of user app: correct user"),
        (
            OSError("tried: [SSL: X] certificate verify failed: IP address mismatch. (_ssl.c:1)"),
            "app",
            "is not accepted (IP address mismatch): correct tls.ca.file",
        ),
        (ssl.SSLError("no shared cipher"), "app", "fails (('no shared cipher',)): correct tls.enabled"),
        (OSError("refused"), "app", "does not answer at db:9042: start it"),
    ],
)
def test_why_nobody_could_connect_is_told_with_the_option_to_mend(
    error: Exception, user: str | None, sentence: str
) -> None:
    failure = Exception("no host")
    failure.errors = {"db": error}  # type: ignore[attr-defined]
    options = CassandraOptions(user=user, password="geheim")
    told = str(_unreachable(CassandraCluster.at("db", options), failure))
    assert sentence in told
    assert "geheim" not in told


class Session:
    """Fails some times to prepare a statement, then does."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.asked = 0

    def prepare(self, text: str) -> Any:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return SimpleNamespace(text=text)


def test_a_node_that_has_not_heard_of_a_column_yet_is_asked_again() -> None:
    late = [cassandra.InvalidRequest("Undefined column name tries") for _ in range(SCHEMA_ATTEMPTS - 1)]
    session: Any = Session(*late)
    connection = Connection(session, CassandraOptions(write_consistency="ALL"))
    statement = connection.writing("INSERT")
    assert statement.consistency_level == cassandra.ConsistencyLevel.ALL
    assert statement.is_idempotent
    assert connection.writing("INSERT") is statement
    assert session.asked == SCHEMA_ATTEMPTS


def test_what_is_wrong_for_good_or_forbidden_is_told() -> None:
    wrong: Any = Session(*(cassandra.InvalidRequest("no such table") for _ in range(SCHEMA_ATTEMPTS)))
    with pytest.raises(CassandraError, match="does not understand a statement of ours: no such table"):
        Connection(wrong, CassandraOptions()).reading("SELECT")
    forbidden: Any = Session(cassandra.Unauthorized("User app has no SELECT permission"))
    with pytest.raises(CassandraError, match="refuses user app: User app has no SELECT permission"):
        Connection(forbidden, CassandraOptions(user="app")).reading("SELECT")
    assert forbidden.asked == 1
