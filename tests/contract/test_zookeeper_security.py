"""A ZooKeeper that asks who somebody is, by TLS and by SASL, nodes that belong to somebody, and connections
that break or do not come about."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.connection import _CONNECTION_DROP, _SESSION_EXPIRED
from kazoo.protocol.states import KeeperState
from tests.rigs.waiting import until

from tidelog.client import _old_offsets as old_offsets
from tidelog.client._old_offsets import OldOffsetsError, read_old_group
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.metadata.store import Create, SessionExpired, SessionState, Set, TooLargeError
from tidelog.metadata.zookeeper import zookeeper_store as zookeeper
from tidelog.metadata.zookeeper.security import ZooKeeperLogin, ZooKeeperSecurity
from tidelog.metadata.zookeeper.settings import zookeeper_security
from tidelog.metadata.zookeeper.zookeeper_store import (
    ZooKeeperRefusedError,
    ZooKeeperStore,
    ZooKeeperUnreachableError,
)
from tidelog.processes.zookeeper import ServerSecurity, ZooKeeperEnsemble

TIMEOUT_S = 30
PASSWORD = "a word with signs: !?"


class Keys:
    """Two certificates that sign themselves: the server's and the brokers'."""

    def __init__(self, directory: Path) -> None:
        self.server = self._make(directory / "server", x509.Name.from_rfc4514_string("CN=zookeeper"))
        self.broker = self._make(directory / "broker", x509.Name.from_rfc4514_string("CN=broker,O=tidelog"))

    def _make(self, base: Path, subject: x509.Name) -> Path:
        """``base.pem`` with key and certificate, ``base.crt`` with the certificate alone."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        loopback = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(loopback, critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(Encoding.PEM)
        base.with_suffix(".crt").write_bytes(pem)
        both = base.with_suffix(".pem")
        both.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + pem)
        return both

    def context(self, *, trusted: Path | None = None, shown: Path | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations((trusted or self.server).with_suffix(".crt"))
        if shown is not None:
            context.load_cert_chain(shown)
        return context


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[ZooKeeperEnsemble]:
    security = ServerSecurity({"kafka": PASSWORD}, keys.server, keys.broker.with_suffix(".crt"))
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper"), security=security) as ensemble:
        yield ensemble


def run(
    connect: str, security: ZooKeeperSecurity, scenario: Callable[[ZooKeeperStore], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            store = await ZooKeeperStore.connect(connect, security=security, connection_timeout_ms=5000)
            try:
                await scenario(store)
            finally:
                await store.close()

    asyncio.run(main())


def acl_of(ensemble: ZooKeeperEnsemble, path: str) -> list[tuple[str, str, int]]:
    """As somebody else reads it, who may."""
    client = KazooClient(
        ensemble.connect,
        sasl_options={"mechanism": "DIGEST-MD5", "username": "kafka", "password": PASSWORD},
    )
    client.start()
    try:
        return sorted((acl.id.scheme, acl.id.id, acl.perms) for acl in client.get_acls(path)[0])
    finally:
        client.stop()
        client.close()


def test_a_broker_that_logs_in_owns_the_nodes_that_it_makes(ensemble: ZooKeeperEnsemble) -> None:
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", PASSWORD), set_acl=True)

    async def scenario(store: ZooKeeperStore) -> None:
        await store.create("/config", b"")
        await store.multi([Create("/config/users"), Create("/config/topics", b"open to be read")])
        await store.create("/config/users/alice", b"secret")
        await store.create("/tidelog", b"")
        await store.create("/consumers", b"")
        await store.create("/consumers/old-", b"", sequential=True)

    run(ensemble.connect, security, scenario)
    owner, readers = ("sasl", "kafka", 31), ("world", "anyone", 1)
    assert acl_of(ensemble, "/config/topics") == [owner, readers]
    assert acl_of(ensemble, "/config/users") == [owner]
    assert acl_of(ensemble, "/config/users/alice") == [owner]
    assert acl_of(ensemble, "/tidelog") == [owner]
    assert acl_of(ensemble, "/consumers") == [("world", "anyone", 31)]

    stranger = KazooClient(ensemble.connect)
    stranger.start()
    try:
        assert stranger.get("/config/topics")[0] == b"open to be read"
        with pytest.raises(NoAuthError):
            stranger.get("/config/users/alice")
        with pytest.raises(NoAuthError):
            stranger.set("/config/topics", b"mine")
        with pytest.raises(NoAuthError):
            stranger.delete("/config/users/alice")
        with pytest.raises(NoAuthError):
            stranger.create("/config/mine")
        stranger.create("/consumers/anybody")
    finally:
        stranger.stop()
        stranger.close()


def test_the_same_broker_comes_back_to_its_nodes(ensemble: ZooKeeperEnsemble) -> None:
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", PASSWORD), set_acl=True)

    async def make(store: ZooKeeperStore) -> None:
        await store.create("/mine", b"1")

    async def change(store: ZooKeeperStore) -> None:
        await store.multi([Set("/mine", b"2")])
        assert (await store.get("/mine"))[0] == b"2"

    run(ensemble.connect, security, make)
    run(ensemble.connect, security, change)


def test_a_wrong_password_is_a_sentence_and_not_a_wait(ensemble: ZooKeeperEnsemble) -> None:
    async def never(store: ZooKeeperStore) -> None:
        raise AssertionError("it was let in")

    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", "guessed"), set_acl=True)
    with pytest.raises(ZooKeeperRefusedError, match="refuses the login") as refusal:
        run(ensemble.connect, security, never)
    assert "guessed" not in str(refusal.value)
    assert "guessed" not in repr(security)


def test_a_wrong_password_is_said_on_a_loop_that_hears_of_it_late(ensemble: ZooKeeperEnsemble) -> None:
    """By then kazoo has closed its client, which looks like any other end of it."""
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", "guessed"), set_acl=True)

    async def connect() -> None:
        asyncio.get_running_loop().call_soon(time.sleep, 2)
        await ZooKeeperStore.connect(ensemble.connect, security=security)

    with pytest.raises(ZooKeeperRefusedError, match="refuses the login"):
        asyncio.run(connect())


def test_a_wrong_password_is_said_to_who_asks_a_client_that_has_closed_meanwhile(
    ensemble: ZooKeeperEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal comes between the connection and the first question, and the loop has not heard of it."""
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", "guessed"), set_acl=True)
    ask = KazooClient.exists_async

    def ask_once_closed(client: KazooClient, *args: object, **kwargs: object) -> object:
        deadline_s = time.monotonic() + TIMEOUT_S
        while client.client_state != KeeperState.CLOSED and time.monotonic() < deadline_s:
            time.sleep(0.01)
        return ask(client, *args, **kwargs)

    monkeypatch.setattr(KazooClient, "exists_async", ask_once_closed)
    with pytest.raises(ZooKeeperRefusedError, match="refuses the login"):
        asyncio.run(ZooKeeperStore.connect(ensemble.connect, security=security))


class Relay:
    """Stands between a client and a server; ends connections when it is told to, or during a login."""

    def __init__(self, connect: str) -> None:
        host, _, port = connect.partition(":")
        self._server = host, int(port)
        self.logins_to_end = 0
        self._open: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    def end_connections(self) -> None:
        for writer in self._open:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        answers, requests = await asyncio.open_connection(*self._server)
        answering = asyncio.create_task(self._pass_on(answers, writer))
        if self.logins_to_end:
            self.logins_to_end -= 1
            size = await reader.readexactly(4)
            requests.write(size + await reader.readexactly(int.from_bytes(size, "big")))
            # That was the connect request; the next one is of the login.
            await reader.readexactly(4)
        else:
            await self._pass_on(reader, requests)
        requests.close()
        writer.close()
        await answering

    @staticmethod
    async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)


def test_a_server_that_goes_away_in_the_middle_of_a_login_is_come_back_to_in_the_same_session(
    ensemble: ZooKeeperEnsemble,
) -> None:
    """Otherwise the broker would lead nothing until ZooKeeper misses the session that it has left."""
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", PASSWORD), set_acl=True)

    async def main() -> None:
        relay = Relay(ensemble.connect)
        address = await relay.start()
        store = await ZooKeeperStore.connect(address, security=security)
        session = store.session_id
        states: list[SessionState] = []
        store.on_session(states.append)
        try:
            await store.create("/kept", ephemeral=True)
            relay.logins_to_end = 2
            relay.end_connections()
            async with asyncio.timeout(TIMEOUT_S):
                await until_back(store, lambda: not relay.logins_to_end)
            assert SessionState.EXPIRED not in states
            stat = await store.stat("/kept")
            assert stat is not None
            assert stat.owner == store.session_id == session
        finally:
            await store.close()

    asyncio.run(main())


def test_logins_that_are_cut_off_do_not_make_a_large_write_too_large(ensemble: ZooKeeperEnsemble) -> None:
    """It waits behind the login, and was not sent yet."""
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", PASSWORD), set_acl=True)

    async def main() -> None:
        relay = Relay(ensemble.connect)
        store = await ZooKeeperStore.connect(await relay.start(), security=security)
        try:
            relay.logins_to_end = 5
            relay.end_connections()
            async with asyncio.timeout(TIMEOUT_S):
                await until(lambda: store.disconnects > 0)
                await store.create("/large", b"x" * 1_010_000)
                assert not relay.logins_to_end
                assert await store.set("/large", b"y" * 1_020_000) == 1
        finally:
            await store.close()

    asyncio.run(main())


def test_what_is_too_large_is_refused_also_of_who_has_logged_in(ensemble: ZooKeeperEnsemble) -> None:
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", PASSWORD), set_acl=True)

    async def scenario(store: ZooKeeperStore) -> None:
        with pytest.raises(TooLargeError):
            await store.create("/too-large", b"x" * 1_200_000)
        assert not await store.exists("/too-large")

    run(ensemble.connect, security, scenario)


def test_a_session_is_left_where_no_login_comes_through_for_as_long_as_one_lives(
    ensemble: ZooKeeperEnsemble,
) -> None:
    """Old servers refuse so. Each attempt keeps the session alive: nobody would take its place."""
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", PASSWORD), set_acl=True)

    async def main() -> None:
        relay = Relay(ensemble.connect)
        store = await ZooKeeperStore.connect(await relay.start(), security=security)
        store._session_timeout_s = 0.5
        session = store.session_id
        expired = asyncio.Event()
        store.on_session(lambda state: expired.set() if state is SessionState.EXPIRED else None)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                relay.logins_to_end = sys.maxsize
                relay.end_connections()
                await expired.wait()
                relay.logins_to_end = 0
                await until_back(store, lambda: store.session_id != session)
        finally:
            await store.close()

    asyncio.run(main())


def test_a_login_that_is_refused_later_is_tried_again_in_another_session(
    ensemble: ZooKeeperEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the passwords of an ensemble are replaced."""
    monkeypatch.setattr(zookeeper, "_RECONNECT_S", 0.01)
    security = ZooKeeperSecurity(login=ZooKeeperLogin("kafka", PASSWORD), set_acl=True)

    async def main() -> None:
        relay = Relay(ensemble.connect)
        store = await ZooKeeperStore.connect(await relay.start(), security=security)
        session = store.session_id
        login = store._client._connection.sasl_options
        expired = asyncio.Event()
        store.on_session(lambda state: expired.set() if state is SessionState.EXPIRED else None)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                login["password"] = "another one by now"
                relay.end_connections()
                await expired.wait()
                login["password"] = PASSWORD
                await until_back(store, lambda: store.session_id != session)
        finally:
            await store.close()

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("breaks", "failing_lookups", "failing_starts"),
    [
        pytest.param(_CONNECTION_DROP, 3, 0, id="once its connection was lost"),
        pytest.param(_SESSION_EXPIRED, 2, 0, id="once its session has expired"),
        pytest.param(_CONNECTION_DROP, 1, 2, id="once it was lost, and cannot begin again"),
    ],
)
def test_a_client_that_ends_before_it_is_connected_again_is_started_until_it_is(
    ensemble: ZooKeeperEnsemble,
    monkeypatch: pytest.MonkeyPatch,
    breaks: object,
    failing_lookups: int,
    failing_starts: int,
) -> None:
    """kazoo's thread ends with a lookup that fails for want of a file descriptor, and not always says so."""
    monkeypatch.setattr(zookeeper, "_RECONNECT_S", 0.01)
    failures = {"lookups": failing_lookups, "starts": failing_starts}

    def fail(what: str, then: Callable[[], object]) -> object:
        if failures[what]:
            failures[what] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return then()

    async def scenario(store: ZooKeeperStore) -> None:
        client = store._client
        connection = client._connection
        look_up, start = connection._expand_client_hosts, client.start_async
        monkeypatch.setattr(connection, "_expand_client_hosts", lambda: fail("lookups", look_up))
        monkeypatch.setattr(client, "start_async", lambda: fail("starts", start))
        client._call(breaks, client.handler.async_result())
        await until_back(store, lambda: not any(failures.values()))

    run(ensemble.connect, ZooKeeperSecurity(), scenario)


@contextlib.contextmanager
def hanging_server(*, takes_connections: bool) -> Iterator[str]:
    """The address of a machine that answers nothing, or not even to who wants to connect."""
    with socket.socket() as listening, socket.socket() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        host, port = listening.getsockname()
        if not takes_connections:
            # There is room for one that is not accepted; what comes after it is not answered.
            waiting.connect((host, port))
        yield f"{host}:{port}"


@pytest.mark.parametrize(
    ("tls", "takes_connections"),
    [
        pytest.param(False, False, id="plain, at the connection"),
        pytest.param(True, False, id="TLS, at the connection"),
        pytest.param(True, True, id="TLS, at the handshake"),
    ],
)
def test_a_server_that_hangs_leaves_time_for_the_others(
    ensemble: ZooKeeperEnsemble,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    tls: bool,
    takes_connections: bool,
) -> None:
    """Servers are tried in any order: here the one that hangs comes first."""
    monkeypatch.setattr(zookeeper, "KazooClient", partial(KazooClient, randomize_hosts=False))
    security = ZooKeeperSecurity(tls=(lambda: keys.context(shown=keys.broker)) if tls else None)
    server = ensemble.connect_by_tls if tls else ensemble.connect

    async def main(hanging: str) -> None:
        # Six servers, a second for each.
        store = await ZooKeeperStore.connect(
            ",".join([hanging, *5 * [server]]),
            security=security,
            session_timeout_ms=6000,
            connection_timeout_ms=5000,
        )
        await store.close()

    with hanging_server(takes_connections=takes_connections) as hanging:
        asyncio.run(main(hanging))


def test_old_offsets_are_looked_for_at_the_other_servers_if_one_hangs(
    ensemble: ZooKeeperEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_offsets, "KazooClient", partial(KazooClient, randomize_hosts=False))
    with (
        hanging_server(takes_connections=False) as hanging,
        pytest.raises(OldOffsetsError, match="no offsets of group 'nobody'"),
    ):
        read_old_group(",".join([hanging, *5 * [ensemble.connect]]), "nobody", timeout_s=6)


async def until_back(store: ZooKeeperStore, has_happened: Callable[[], bool]) -> None:
    """Until ZooKeeper answers after something has happened."""
    while True:
        try:
            if await store.exists("/") and has_happened():
                return
        except SessionExpired:
            pass
        await asyncio.sleep(0.01)


def test_a_certificate_that_is_unreadable_for_a_moment_does_no_lasting_harm(
    ensemble: ZooKeeperEnsemble, keys: Keys
) -> None:
    """Keys are replaced while connections come and go."""
    asked = 0

    def context() -> ssl.SSLContext:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ConfigError("the store is half written")
        return keys.context(shown=keys.broker)

    async def main() -> None:
        relay = Relay(ensemble.connect_by_tls)
        async with asyncio.timeout(TIMEOUT_S):
            store = await ZooKeeperStore.connect(await relay.start(), security=ZooKeeperSecurity(tls=context))
            try:
                relay.end_connections()
                await until_back(store, lambda: asked >= 3)
            finally:
                await store.close()

    asyncio.run(main())


def test_tls_with_a_certificate_that_owns_the_nodes(ensemble: ZooKeeperEnsemble, keys: Keys) -> None:
    security = ZooKeeperSecurity(tls=lambda: keys.context(shown=keys.broker), set_acl=True)

    async def scenario(store: ZooKeeperStore) -> None:
        await store.create("/by-certificate", b"x" * 100_000)
        # Many answers at once: some come together in one record.
        await asyncio.gather(*(store.get("/by-certificate") for _ in range(200)))
        await asyncio.gather(*(store.exists("/by-certificate") for _ in range(500)))

    run(ensemble.connect_by_tls, security, scenario)
    assert acl_of(ensemble, "/by-certificate") == [
        ("world", "anyone", 1),
        ("x509", "CN=broker,O=tidelog", 31),
    ]


@pytest.mark.parametrize("case", ["a server that is not trusted", "a port without TLS", "no certificate"])
def test_what_keeps_tls_from_working_is_said(ensemble: ZooKeeperEnsemble, keys: Keys, case: str) -> None:
    async def never(store: ZooKeeperStore) -> None:
        raise AssertionError("it was let in")

    connect, trusted, shown = ensemble.connect_by_tls, None, keys.broker
    if case == "a server that is not trusted":
        trusted = keys.broker
    elif case == "a port without TLS":
        connect = ensemble.connect
    security = ZooKeeperSecurity(
        tls=lambda: keys.context(trusted=trusted, shown=None if case == "no certificate" else shown)
    )
    with pytest.raises(ZooKeeperUnreachableError) as failure:
        run(connect, security, never)
    option = "keystore" if case == "no certificate" else "truststore"
    assert f"zookeeper.ssl.{option}.location" in str(failure.value)


def test_the_options_of_a_broker_make_such_connections(ensemble: ZooKeeperEnsemble, keys: Keys) -> None:
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    config = BrokerConfig(
        {
            "zookeeper.connect": ensemble.connect_by_tls,
            "zookeeper.set.acl": "true",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.location": str(keys.broker),
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.truststore.location": str(keys.server.with_suffix(".crt")),
            "zookeeper.ssl.truststore.type": "PEM",
            "tidelog.zookeeper.jaas.config": f'{module} required username="kafka" password="{PASSWORD}";',
        }
    )
    security = zookeeper_security(config)
    assert PASSWORD not in repr(security)

    async def scenario(store: ZooKeeperStore) -> None:
        await store.create("/by-options")

    run(ensemble.connect_by_tls, security, scenario)
    assert ("sasl", "kafka", 31) in acl_of(ensemble, "/by-options")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"zookeeper.set.acl": "true"}, "this broker is nobody to ZooKeeper"),
        ({"tidelog.zookeeper.jaas.config": "Digest required"}, "cannot be read"),
        ({"tidelog.zookeeper.jaas.config": 'Digest required username="a";'}, 'needs username="…"'),
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/nowhere",
                "zookeeper.ssl.truststore.type": "PEM",
            },
            "zookeeper.ssl.truststore.location: there is no file /nowhere",
        ),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        zookeeper_security(BrokerConfig({"zookeeper.connect": "localhost:1", **options}))
