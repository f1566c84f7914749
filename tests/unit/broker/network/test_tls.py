"""TLS on real sockets: handshakes, who a client is, bytes both ways, peers that misbehave."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from tests.rigs.tls_files import TlsFiles
from tests.rigs.tls_network import DEADLINE_S, TlsNetwork, ask, exchange, frame, receive

from tidelog.broker.network import tls_handshake
from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.broker.network.network import NetworkLimits
from tidelog.broker.network.tls_listeners import ListenerTls
from tidelog.cli.certs.authority import Issued
from tidelog.security.principal import ANONYMOUS, Principal
from tidelog.security.tls.certificate import Certificate, read_certificate

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def served(files: TlsFiles) -> Iterator[TlsNetwork]:
    with TlsNetwork(files) as network:
        yield network


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_answered_in_both_versions(served: TlsNetwork, version: ssl.TLSVersion) -> None:
    context = served.context()
    context.minimum_version = context.maximum_version = version
    with served.client(context) as client:
        assert ask(client, b"hello") == b"hello"
        assert client.version() == ("TLSv1.2" if version is VERSIONS[0] else "TLSv1.3")
    session = served.handler.sessions[0]
    assert (session.principal, session.security_protocol, session.host) == (ANONYMOUS, "SSL", "127.0.0.1")


def test_listeners_without_tls_are_beside_it(served: TlsNetwork) -> None:
    with served.raw("PLAINTEXT") as client:
        assert ask(client, b"hello") == b"hello"
    assert served.handler.sessions[0].security_protocol == "PLAINTEXT"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_is_known_by_its_certificate(files: TlsFiles, version: ssl.TLSVersion) -> None:
    rules = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U"}
    with TlsNetwork(files, rules) as served:
        context = served.context(files.client)
        context.minimum_version = context.maximum_version = version
        with served.client(context) as client:
            ask(client, b"x")
            session = client.session
        assert served.handler.sessions[-1].principal == Principal("CLIENT")
        # Who comes again with a ticket is who he was.
        with served.client(context, session=session) as client:
            ask(client, b"x")
            assert client.session_reused
        assert [each.principal for each in served.handler.sessions] == [Principal("CLIENT")] * 2


def refused(client_of: contextlib.AbstractContextManager[ssl.SSLSocket]) -> bool:
    """Whether the broker refuses a client: during the handshake or, as TLS 1.3 has it, right behind it."""
    try:
        with client_of as client:
            client.sendall(frame(b"x"))
            return client.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def _has_refused(served: TlsNetwork, count: int) -> bool:
    return served.handshake_failures == count


def _logged(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


class Later:
    """A client that connects when it is entered."""

    def __init__(self, served: TlsNetwork, certificate: Path | None) -> None:
        self._served = served
        self._certificate = certificate

    def __enter__(self) -> ssl.SSLSocket:
        self._client = self._served.client(certificate=self._certificate)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()


def test_clients_without_a_good_certificate_are_refused_and_the_reason_logged(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    expired = files.pair("expired.pem", files.authority.issue("late", days=-1))
    with TlsNetwork(files, {"ssl.client.auth": "required"}) as served:
        for certificate, words in (
            (None, "it shows no certificate, and ssl.client.auth=required asks for one"),
            (files.stranger, "its certificate is refused: unable to get local issuer certificate"),
            (expired, "its certificate is refused: certificate has expired"),
        ):
            caplog.clear()
            assert refused(Later(served, certificate))
            served.wait_until(partial(_logged, caplog, words))
            assert "No TLS with 127.0.0.1:" in caplog.text
        assert served.handshake_failures == 3
        served.wait_until(lambda: served.network.quotas.total == 0)
        with served.client(certificate=files.client) as client:
            assert ask(client, b"x") == b"x"


@pytest.mark.parametrize("version", VERSIONS)
def test_whose_certificate_was_refused_is_said_when_he_comes_again(
    files: TlsFiles, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion
) -> None:
    expired = files.pair("expired.pem", files.authority.issue("late", days=-1))
    with TlsNetwork(files, {"ssl.client.auth": "required"}) as served:
        late, good = served.context(expired), served.context(files.client)
        for context in (late, good):
            context.minimum_version = context.maximum_version = version
        for failures in (1, 2):
            with contextlib.suppress(ssl.SSLError, ConnectionError), served.client(late) as client:
                client.recv(1)
            served.wait_until(partial(_has_refused, served, failures))
        assert (
            "its certificate is refused: certificate has expired (it says that it is CN=late)" in caplog.text
        )
        with contextlib.suppress(ssl.SSLError, ConnectionError), served.client(late) as client:
            client.recv(1)
        served.wait_until(lambda: served.handshake_failures == 3)
        # Somebody else from the same address, while it is listened to.
        with served.client(good) as client:
            assert ask(client, b"y" * 100_000) == b"y" * 100_000


@pytest.mark.parametrize("version", VERSIONS)
def test_a_ticket_is_good_for_no_longer_than_its_certificate(
    files: TlsFiles,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    version: ssl.TLSVersion,
) -> None:
    """OpenSSL looks at a certificate when it is shown, and not when its owner comes with a ticket."""
    with TlsNetwork(files, {"ssl.client.auth": "required"}) as served:
        context = served.context(files.client)
        context.minimum_version = context.maximum_version = version
        with served.client(context) as client:
            ask(client, b"x")
            session = client.session
        monkeypatch.setattr(tls_handshake, "read_certificate", _as_in_ten_years)
        with (
            contextlib.suppress(ssl.SSLError, ConnectionError),
            served.client(context, session=session) as client,
        ):
            assert client.session_reused
            client.sendall(frame(b"x"))
            assert client.recv(1) == b""
        served.wait_until(lambda: served.handshake_failures == 1)
    assert "the certificate of CN=client expired on" in caplog.text


def _as_in_ten_years(encoded: bytes) -> Certificate:
    certificate = read_certificate(encoded)
    return replace(certificate, not_after=certificate.not_after - timedelta(days=3650))


def test_a_certificate_that_is_only_asked_for_may_be_missing_but_not_wrong(files: TlsFiles) -> None:
    with TlsNetwork(files, {"ssl.client.auth": "requested"}) as served:
        with served.client() as client:
            ask(client, b"x")
        with served.client(certificate=files.client) as client:
            ask(client, b"x")
        assert {each.principal for each in served.handler.sessions} == {ANONYMOUS, Principal("CN=client")}
        assert refused(Later(served, files.stranger))


def test_a_client_whom_no_rule_names_is_refused(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
            x509.NameAttribute(NameOID.COMMON_NAME, "other"),
        ]
    )
    certificate = files.pair("other.pem", files.authority.issue(name))
    rules = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*),OU=.*$/$1/"}
    with TlsNetwork(files, rules) as served:
        assert refused(Later(served, certificate))
        served.wait_until(lambda: "applies to CN=other,O=Example" in caplog.text)


def test_ciphers_that_are_not_named_are_not_used(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    options = {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    with TlsNetwork(files, options) as served:
        with served.client() as client:
            assert client.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
            ask(client, b"x")
        context = served.context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with served.client(context) as client:
            assert (client.cipher() or ("",))[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
        context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
        with pytest.raises(ssl.SSLError):
            served.client(context)
        served.wait_until(lambda: "it has none of our ciphers" in caplog.text)


# -- bytes both ways ------------------------------------------------------------------------------------


def test_large_requests_and_answers_come_through(served: TlsNetwork, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(1024 * 1024) * 30)
    served.serve_file(path)
    with served.client() as client:
        body = b"x" + os.urandom(8 * 1024 * 1024)
        assert exchange(client, frame(body), 1) == [body]
        client.sendall(frame(b"f") + frame(b"behind it"))
        assert receive(client) == path.read_bytes()
        assert receive(client) == b"behind it"


def test_small_requests_in_a_row_are_answered_in_order(served: TlsNetwork) -> None:
    bodies = [b"x%d" % number for number in range(3000)]
    with served.client() as client:
        assert exchange(client, b"".join(map(frame, bodies)), len(bodies)) == bodies
        # Records of their own, cut where they please.
        stream = b"".join(map(frame, bodies))
        for start in range(0, len(stream), 7):
            client.sendall(stream[start : start + 7])
        assert [receive(client) for _ in bodies] == bodies


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("send_buffer", [-1, 4096])
def test_any_mix_of_requests_comes_back_as_it_was_sent(
    files: TlsFiles, tmp_path: Path, seed: int, send_buffer: int
) -> None:
    """Small socket buffers: records that the kernel does not take are begun again."""
    chance = random.Random(seed)
    path = tmp_path / "log"
    path.write_bytes(os.urandom(700_001))
    sizes = [chance.choice([1, 30, 16_000, 16_384, 20_000, 70_000, 300_000, 1_200_000]) for _ in range(60)]
    bodies = [b"f" if chance.random() < 0.2 else b"x" + chance.randbytes(size) for size in sizes]
    with TlsNetwork(files, limits=NetworkLimits(send_buffer_bytes=send_buffer)) as served:
        served.serve_file(path)
        with served.client() as client:
            found = exchange(
                client,
                b"".join(map(frame, bodies)),
                len(bodies),
                lambda: 0.01 if chance.random() < 0.05 else 0,
            )
        content = path.read_bytes()
        assert [
            one == (content if other == b"f" else other) for one, other in zip(found, bodies, strict=True)
        ] == [True] * len(bodies)


def test_who_does_not_read_holds_up_nobody_and_gets_all_of_it(served: TlsNetwork, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(1024 * 1024) * 20)
    served.serve_file(path)
    with contextlib.ExitStack() as stack:
        stalled = [stack.enter_context(served.client()) for _ in range(10)]
        for client in stalled:
            client.sendall(frame(b"f") * 3)
        served.wait_until(lambda: all(each.busy for each in served.network.connections))
        with served.client() as other:
            for number in range(200):
                assert ask(other, b"x%d" % number) == b"x%d" % number
        content = path.read_bytes()
        for client in stalled[:2]:
            assert [receive(client) for _ in range(3)] == [content] * 3


def test_a_peer_that_says_goodbye_need_not_be_waited_for(served: TlsNetwork) -> None:
    client = served.client()
    client.sendall(frame(b"w"))
    served.wait_until(lambda: served.handler.seen == 1)
    # Only TLS ends here: the socket itself stays open.
    with contextlib.suppress(ssl.SSLError, OSError):
        client.settimeout(0.05)
        client.unwrap()
    served.wait_until(lambda: served.handler.cancelled == 1 and not served.network.connections)
    client.close()


def test_a_peer_that_is_closed_on_hears_goodbye(served: TlsNetwork) -> None:
    with served.client() as client:
        ask(client, b"x")
        (connection,) = served.network.connections
        served.call(connection.close)
        # Without a goodbye this would be an SSLEOFError.
        assert client.recv(1) == b""


def test_a_peer_that_resets_is_forgotten(served: TlsNetwork) -> None:
    client = served.client()
    client.sendall(frame(b"w"))
    served.wait_until(lambda: served.handler.seen == 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    served.wait_until(lambda: not served.network.connections)
    assert served.network.quotas.total == 0


def test_records_that_were_tampered_with_end_the_connection(served: TlsNetwork) -> None:
    client = served.client()
    ask(client, b"x")
    raw = socket.socket(fileno=os.dup(client.fileno()))
    raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    served.wait_until(lambda: not served.network.connections)
    raw.close()
    client.close()


# -- those who do not mean well -------------------------------------------------------------------------


def test_a_client_without_tls_is_turned_away_at_once(
    served: TlsNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    with served.raw() as client:
        client.sendall(frame(b"\0\x12\0\3"))
        assert client.recv(1) == b""
    assert "it looks like a plaintext Kafka client, which has to set security.protocol=SSL" in caplog.text
    served.wait_until(lambda: served.network.quotas.total == 0)


def test_a_client_with_tls_is_told_from_others_where_there_is_none(
    served: TlsNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    with served.raw("PLAINTEXT") as sock, pytest.raises((ssl.SSLError, ConnectionError)):
        served.context().wrap_socket(sock, server_hostname="localhost")
    served.wait_until(lambda: "it began a TLS handshake, and this listener has no TLS" in caplog.text)


def test_who_only_looks_whether_the_port_is_open_is_not_worth_a_line(
    served: TlsNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    served.raw().close()
    served.wait_until(lambda: served.handshake_failures == 1)
    # Threads of other tests may log, too.
    logged = [record for record in caplog.records if record.name.startswith("tidelog.broker")]
    assert not [record for record in logged if record.levelno >= logging.WARNING]


def client_hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    return outgoing.read()


def test_half_handshakes_end_and_harm_nobody(files: TlsFiles) -> None:
    """More of them than may be under way: some silent, some in the middle; a client comes through all the
    same."""
    with TlsNetwork(files, limits=NetworkLimits(max_idle_ms=8000, backlog=1024)) as served:
        hello = client_hello(served.context())
        silent = [served.raw() for _ in range(150)]
        halves = [served.raw() for _ in range(450)]
        for number, sock in enumerate(halves):
            sock.sendall(hello if number % 2 else hello[:50])
        served.wait_until(lambda: served.network.sockets == 600)
        assert served.network.quotas.total == 600
        with served.client() as client:
            for number in range(100):
                assert ask(client, b"x%d" % number) == b"x%d" % number
        served.wait_until(lambda: served.network.sockets == 0)
        assert served.network.quotas.total == 0
        assert served.handshake_failures == 600
        for sock in (*silent, *halves):
            sock.close()


def test_a_crowd_from_one_address_keeps_nobody_out_from_another(files: TlsFiles) -> None:
    """And when all of it hangs up at once, that is the end of it and of nothing else."""
    with TlsNetwork(files, limits=NetworkLimits(backlog=2048)) as served:
        handshakes = served.network.handshakes
        assert handshakes is not None
        handshakes._max_under_way = 4
        hello = client_hello(served.context())
        crowd = [served.raw() for _ in range(1300)]
        for sock in crowd:
            sock.sendall(hello[:20])
        served.wait_until(lambda: len(handshakes._waiting) > 1000)
        address = ("127.0.0.1", served.ports["SSL"])
        sock = socket.create_connection(address, timeout=DEADLINE_S, source_address=("127.0.0.2", 0))
        with served.context().wrap_socket(sock, server_hostname="localhost") as client:
            assert ask(client, b"x") == b"x"
            assert served.call(lambda: len(handshakes._waiting)) > 500, "it did not wait for all of them"
            for each in crowd:
                each.close()
            served.wait_until(lambda: served.network.sockets == 1)
            assert ask(client, b"y") == b"y"
        served.wait_until(lambda: served.network.quotas.total == 0)
        assert served.handshake_failures == len(crowd)


def test_clients_of_other_addresses_do_not_wait_for_a_crowd_to_stand_still(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshake, "_PATIENCE_S", 1000.0)
    with TlsNetwork(files, limits=NetworkLimits(backlog=2048)) as served:
        handshakes = served.network.handshakes
        assert handshakes is not None
        handshakes._max_under_way = 4
        hello = client_hello(served.context())
        crowd = [served.raw() for _ in range(300)]
        for sock in crowd:
            sock.sendall(hello[:20])
        served.wait_until(lambda: len(handshakes._waiting) == 296)
        for number in range(20):
            address = ("127.0.0.1", served.ports["SSL"])
            source = (f"127.0.0.{2 + number}", 0)
            sock = socket.create_connection(address, timeout=DEADLINE_S, source_address=source)
            with served.context().wrap_socket(sock, server_hostname="localhost") as client:
                assert ask(client, b"x") == b"x"
            assert served.call(lambda: len(handshakes._under_way)) <= 4
        assert served.handshake_failures <= 20, "only as many made room as were needed"
        for each in crowd:
            each.close()


def test_connections_that_shake_hands_count(files: TlsFiles) -> None:
    limits = NetworkLimits(quotas=ConnectionQuotas(max_per_ip=2))
    with TlsNetwork(files, limits=limits) as served:
        waiting = [served.raw() for _ in range(2)]
        served.wait_until(lambda: served.network.sockets == 2)
        with served.raw() as third:
            assert third.recv(1) == b""
        waiting[0].close()
        served.wait_until(lambda: served.network.sockets == 1)
        with served.client() as client:
            assert ask(client, b"x") == b"x"
        waiting[1].close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_renegotiation_is_refused_and_new_keys_are_taken(served: TlsNetwork) -> None:
    """A foreign client: R asks for a renegotiation (TLS 1.2), K and k for new keys (TLS 1.3)."""

    def told(version: str, letter: bytes) -> bytes:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{served.ports['SSL']}", version]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(letter + b"\n")
            client.stdin.flush()
            if letter == b"R":
                output = client.stdout.read()
            else:
                output = _read_until(client.stdout, b"KEYUPDATE\n")
                # A frame of one byte, and its answer.
                client.stdin.write(frame(b"\n"))
                client.stdin.flush()
                output += _read_until(client.stdout, frame(b"\n"))
            client.kill()
            return output

    assert b"no renegotiation" in told("-tls1_2", b"R")
    for letter in (b"K", b"k"):
        assert b"KEYUPDATE" in told("-tls1_3", letter)


def _read_until(stream: IO[bytes], wanted: bytes) -> bytes:
    output = b""
    while wanted not in output:
        piece = os.read(stream.fileno(), 4096)
        assert piece, output
        output += piece
    return output


# -- rotation -------------------------------------------------------------------------------------------


def test_a_new_certificate_is_used_by_new_handshakes_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = TlsFiles(tmp_path)

    def shown(served: TlsNetwork) -> int:
        with served.client() as client:
            return x509.load_der_x509_certificate(client.getpeercert(True) or b"").serial_number

    with TlsNetwork(files) as served:
        listener = served.listeners.by_name["SSL"]
        first = shown(served)
        with served.client() as old:
            renewed = files.authority.issue("server", ["localhost", "127.0.0.1"])
            files.pair("server.pem", renewed)
            served.call(served.listeners.look_again)
            served.wait_until(lambda: listener.reloads == 1)
            assert shown(served) == renewed.certificate.serial_number != first
            assert ask(old, b"still there") == b"still there"
        for number, bad in enumerate(
            (
                "nonsense",
                renewed.key_pem + files.authority.issue("server", ["localhost", "127.0.0.1"]).certificate_pem,
                "".join(_pem(files.authority.issue("other", ["localhost", "127.0.0.1"]))),
                "".join(_pem(files.authority.issue("server", ["localhost", "127.0.0.1"], days=-1))),
            ),
            1,
        ):
            files.write("server.pem", bad)
            served.call(served.listeners.look_again)
            served.wait_until(partial(_failed, listener, number))
            assert shown(served) == renewed.certificate.serial_number
        assert caplog.text.count("goes on with the certificate that it has") == 4
        assert listener.expires_at_s == renewed.certificate.not_valid_after_utc.timestamp()


def _pem(issued: Issued) -> tuple[str, str]:
    return issued.key_pem, issued.certificate_pem


def _failed(listener: ListenerTls, times: int) -> bool:
    return listener.reload_failures == times
