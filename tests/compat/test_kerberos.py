"""GSSAPI with a real KDC: foreign clients at Tidelog, ours at Apache Kafka, and those who may not."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import kafka
import pytest
from foreign import toolchain
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog, free_port
from foreign.kerberos import REALM, Realm
from tests.compat.conftest import available
from tests.compat.mixed_cluster import KAFKA, TIDELOG, MixedCluster
from tests.rigs.raw_client import RawClient
from tests.rigs.sasl_broker import authenticate, shake_hands

from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.from_options import network_settings
from tidelog.client.errors import AuthenticationError
from tidelog.client.options import ADMIN, ClientConfig
from tidelog.errors import ConfigError, ErrorCode
from tidelog.security.kerberos import library
from tidelog.security.kerberos.context import Context
from tidelog.security.kerberos.login import KerberosLogin
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateResponse

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE = "kafka/localhost"
SESSION_MS = 2000


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with available():
        made = Realm(tmp_path_factory.mktemp("realm"))
    with made, made.environment():
        yield made


def by_keytab(keytab: Path, principal: str) -> str:
    return (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}";'
    )


def listener_options(address: str, ports: dict[str, int], keytab: Path) -> dict[str, str]:
    listeners = [
        f"PLAINTEXT://{address}",
        *(f"{name}://localhost:{port}" for name, port in ports.items()),
    ]
    options = {
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", *(f"{name}:SASL_PLAINTEXT" for name in ports)]
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1;$2](.*;admin)s/;.*/-admin/L,DEFAULT",
        "offsets.topic.replication.factor": "1",
    }
    for name in ports:
        options[f"listener.name.{name.lower()}.gssapi.sasl.jaas.config"] = by_keytab(keytab, SERVICE)
    return options


class KerberosBroker(NamedTuple):
    """A broker, where its listeners are, and what it has written down."""

    process: BrokerProcess
    ports: dict[str, int]
    keytab: Path
    audit: Path

    def address(self, listener: str = "CLIENTS") -> str:
        return f"localhost:{self.ports[listener]}"

    def raw(self, listener: str = "CLIENTS") -> RawClient:
        return RawClient("127.0.0.1", self.ports[listener])

    def users(self) -> set[str]:
        lines = self.audit.read_text().splitlines() if self.audit.exists() else []
        return {json.loads(line)["principal"] for line in lines}

    def wait_known(self, user: str) -> None:
        deadline = time.monotonic() + 30
        while user not in self.users():
            assert time.monotonic() < deadline, (user, self.users())
            time.sleep(0.02)

    def wait_logged(self, words: str, since: int = 0) -> None:
        deadline = time.monotonic() + 30
        while words not in self.process.output.read_text(errors="replace")[since:]:
            assert time.monotonic() < deadline, (words, self.process.last_output())
            time.sleep(0.02)

    @property
    def logged(self) -> int:
        return len(self.process.output.read_text(errors="replace"))


@pytest.fixture(scope="module")
def broker(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosBroker]:
    running = Tidelog(tmp_path_factory.mktemp("kerberos"))
    ports = {"CLIENTS": free_port(), "LIMITED": free_port()}
    keytab = realm.keytab(SERVICE)
    audit = running.directory / "audit"
    running.options = {
        **listener_options(running.address, ports, keytab),
        "listener.name.limited.connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "tidelog.audit.log.file": str(audit),
        "auto.create.topics.enable": "true",
    }
    running.start()
    yield KerberosBroker(running, ports, keytab, audit)
    running.stop()


@pytest.fixture(scope="module")
def apache(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosBroker]:
    with available():
        running = ApacheKafka(tmp_path_factory.mktemp("apache"))
        ports = {"CLIENTS": free_port(), "LIMITED": free_port()}
        keytab = realm.keytab(SERVICE)
        options = listener_options(running.address, ports, keytab)
        running.options = {
            **options,
            "advertised.listeners": options["listeners"],
            "listeners": f"{options['listeners']},CONTROLLER://127.0.0.1:{running.controller_port}",
            "listener.name.limited.gssapi.connections.max.reauth.ms": str(SESSION_MS),
        }
        running.start()
    yield KerberosBroker(running, ports, keytab, running.directory / "none")
    running.stop()


@pytest.fixture(params=["broker", "apache"])
def either(request: pytest.FixtureRequest) -> KerberosBroker:
    found: KerberosBroker = request.getfixturevalue(request.param)
    return found


def options_of(address: str, jaas: str | None, **more: Any) -> dict[str, Any]:
    login = {} if jaas is None else {"sasl_jaas_config": jaas}
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        **login,
        **more,
    }


def ask(address: str, jaas: str | None, **more: Any) -> str | None:
    """Log in and have one request answered."""
    config = ClientConfig.parse(ADMIN, options_of(address, jaas, **more))

    async def main() -> str | None:
        async with Cluster(address, network_settings(config)) as cluster:
            (node,) = cluster.metadata.nodes
            answer = await cluster.ask_node(node, DescribeClusterRequest(), DescribeClusterResponse)
            return answer.cluster_id

    return asyncio.run(main())


# Those who may


def test_our_producer_and_consumer_log_in_by_a_keytab(
    either: KerberosBroker, realm: Realm, topic: str
) -> None:
    options = options_of(either.address(), by_keytab(realm.keytab("alice"), "alice"))
    with Admin(**options) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    with Producer(**options) as producer:
        assert [producer.send(topic, value=b"%d" % i).result(30).offset for i in range(20)] == list(range(20))
    received: list[bytes | None] = []
    with Consumer(**options, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + 30
        while len(received) < 20 and time.monotonic() < deadline:
            received += [record.value for record in consumer.poll(1.0)]
    assert received == [b"%d" % i for i in range(20)]


def test_our_client_logs_in_by_the_tickets_of_kinit(
    either: KerberosBroker, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = realm.tickets("alice", realm.keytab("alice"))
    assert ask(either.address(), f'{MODULE} required useTicketCache=true ticketCache="{cache}";')
    with pytest.raises(AuthenticationError, match="kinit"):
        ask(either.address(), None)
    monkeypatch.setenv("KRB5CCNAME", cache)
    assert ask(either.address(), None)
    assert ask(either.address(), f"{MODULE} required useTicketCache=true;")


def test_users_are_who_the_rules_say(broker: KerberosBroker, realm: Realm, topic: str) -> None:
    for principal, user in (
        ("dora", "User:dora"),
        ("Dora/admin", "User:dora-admin"),
        ("carl/host", "User:carl"),
    ):
        with Producer(
            **options_of(broker.address(), by_keytab(realm.keytab(principal), principal))
        ) as producer:
            producer.send(topic, value=b"x").result(30)
        broker.wait_known(user)


@pytest.mark.parametrize("version", ["kafka-4", "kafka-3.9"])
def test_javas_tools_log_in(
    broker: KerberosBroker, realm: Realm, tmp_path: Path, topic: str, version: str
) -> None:
    with Admin(bootstrap_servers=broker.process.address) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    config = tmp_path / "client.properties"
    user = version.replace(".", "")
    jaas = by_keytab(realm.keytab(user), user)
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={jaas}\n"
    )
    with available():
        command = toolchain.java(version, "-Xmx256m", "-XX:TieredStopAtLevel=1")
    done = subprocess.run(
        [
            *(*command, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.address()),
            *("--command-config", str(config), "--describe", "--topic", topic),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"Topic: {topic}" in done.stdout, done.stdout + done.stderr
    broker.wait_known(f"User:{user}")


def test_kcat_logs_in(
    broker: KerberosBroker, realm: Realm, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with available():
        program = toolchain.kcat()
    monkeypatch.setenv("KRB5CCNAME", realm.tickets("cyrus", realm.keytab("cyrus")))
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.kinit.cmd": "true",
    }
    command = [program, "-b", broker.address(), *(f"-X{name}={value}" for name, value in login.items())]

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run([*command, *arguments], input=stdin, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-P", "-t", topic, "-p", "0", stdin="one\ntwo\n")
    assert run("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == "one\ntwo\n"
    broker.wait_known("User:cyrus")


def test_kafka_python_and_aiokafka_log_in(
    broker: KerberosBroker, realm: Realm, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "bootstrap_servers": broker.address(),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    monkeypatch.setenv("KRB5CCNAME", realm.tickets("kp", realm.keytab("kp")))
    sender = kafka.KafkaProducer(**options)
    assert sender.send(topic, b"hello").get(30).offset == 0
    sender.close()
    broker.wait_known("User:kp")

    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(**options, sasl_kerberos_domain_name="localhost")
        await producer.start()
        try:
            assert (await producer.send_and_wait(topic, b"again")).offset == 1
        finally:
            await producer.stop()

    # It has looked for the package when it was imported, which may have been before the realm was made.
    monkeypatch.setattr("aiokafka.conn.gssapi", library.load())
    monkeypatch.setenv("KRB5CCNAME", realm.tickets("aio", realm.keytab("aio")))
    asyncio.run(main())
    broker.wait_known("User:aio")


def test_a_session_that_is_limited_goes_on_by_logging_in_again_on_the_same_connection(
    either: KerberosBroker, realm: Realm
) -> None:
    address = either.address("LIMITED")
    config = ClientConfig.parse(ADMIN, options_of(address, by_keytab(realm.keytab("alice"), "alice")))

    async def main() -> None:
        async with Cluster(address, network_settings(config)) as cluster:
            (node,) = cluster.metadata.nodes
            connection = await cluster.connection_to(node)
            assert connection.session_lifetime_ms == SESSION_MS
            end = asyncio.get_running_loop().time() + 2.5 * SESSION_MS / 1000
            while asyncio.get_running_loop().time() < end:
                await cluster.ask_node(node, DescribeClusterRequest(), DescribeClusterResponse)
            assert await cluster.connection_to(node) is connection

    asyncio.run(main())


def test_a_client_of_bare_messages_hears_nothing_behind_its_last_one(
    either: KerberosBroker, realm: Realm
) -> None:
    context, token = ticket_of(realm, "alice")
    with either.raw() as client:
        shake_hands(client, "GSSAPI", 0)
        client.send_frame(token)
        context.step(client.receive())
        client.send_frame(b"")
        offer = context.unwrap(client.receive())
        assert offer[0] == 1
        client.send_frame(context.wrap(b"\x01\0\0\0"))
        assert client.ask(0, DescribeClusterRequest(), DescribeClusterResponse).cluster_id


def test_a_new_keytab_is_used_without_a_restart(realm: Realm, tmp_path: Path) -> None:
    running = Tidelog(tmp_path / "rotated")
    ports = {"CLIENTS": free_port()}
    keytab = realm.keytab("rotated/localhost")
    running.options = {
        **listener_options(running.address, ports, keytab),
        "listener.name.clients.gssapi.sasl.jaas.config": by_keytab(keytab, "rotated/localhost"),
        "sasl.kerberos.service.name": "rotated",
    }
    running.start()
    try:
        address = f"localhost:{ports['CLIENTS']}"
        service = {"sasl_kerberos_service_name": "rotated"}
        assert ask(address, by_keytab(realm.keytab("one"), "one"), **service)
        newer = realm.new_key("rotated/localhost")
        with pytest.raises(AuthenticationError, match="refused the login by GSSAPI"):
            ask(address, by_keytab(realm.keytab("two"), "two"), **service)
        assert "ktadd" in running.last_output()
        newer.replace(keytab)
        assert ask(address, by_keytab(realm.keytab("three"), "three"), **service)
    finally:
        running.stop()


def test_brokers_of_a_mixed_cluster_log_in_at_each_other(realm: Realm, tmp_path: Path, topic: str) -> None:
    def between_brokers(address: str) -> dict[str, str]:
        listeners = listener_options(address, {"BROKERS": free_port()}, realm.keytab(SERVICE))
        return {
            **listeners,
            "advertised.listeners": listeners["listeners"],
            "inter.broker.listener.name": "BROKERS",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        }

    with available(), MixedCluster(tmp_path) as cluster:
        cluster.kafka(KAFKA, between_brokers)
        cluster.tidelog(TIDELOG, between_brokers)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, assignments={0: [KAFKA, TIDELOG], 1: [TIDELOG, KAFKA]})])
        cluster.wait_all_in_sync([(topic, 0), (topic, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for partition in (0, 1):
                assert producer.send(topic, value=b"x", partition=partition).result(30).offset == 0


# Those who may not


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (by_keytab(Path("/nowhere/keytab"), SERVICE), "the keytab /nowhere/keytab, which is not there"),
        ("alice", f"No key table entry found for {SERVICE}@{REALM}"),
        ("empty", "cannot be used for"),
    ],
)
def test_a_broker_without_its_key_does_not_start_and_says_why(
    realm: Realm, tmp_path: Path, line: str, why: str
) -> None:
    running = Tidelog(tmp_path / "broker")
    (tmp_path / "empty").write_bytes(b"")
    keytabs = {"alice": realm.keytab("alice"), "empty": tmp_path / "empty"}
    if line in keytabs:
        line = by_keytab(keytabs[line], SERVICE)
    running.options = {
        **listener_options(running.address, {"CLIENTS": free_port()}, tmp_path),
        "listener.name.clients.gssapi.sasl.jaas.config": line,
    }
    with pytest.raises(RuntimeError, match=why) as ended:
        running.start()
    assert "Traceback" not in str(ended.value)
    assert "listener.name.clients.gssapi.sasl.jaas.config" in str(ended.value)


def test_a_keytab_with_an_old_key_is_refused_by_the_kdc(either: KerberosBroker, realm: Realm) -> None:
    old = realm.keytab("forgetful")
    realm.new_key("forgetful")
    with pytest.raises(AuthenticationError, match=r"no ticket for kafka/localhost.*ktadd"):
        ask(either.address(), by_keytab(old, "forgetful"))


def test_a_keytab_that_is_not_there_or_of_somebody_else_is_refused(
    either: KerberosBroker, realm: Realm
) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config has the keytab /nowhere, which is not there"):
        ask(either.address(), by_keytab(Path("/nowhere"), "alice"))
    with pytest.raises(AuthenticationError, match=f"the keytab has no key of bob@{REALM}; klist -k"):
        ask(either.address(), by_keytab(realm.keytab("alice"), "bob"))


def test_a_kdc_that_does_not_answer_is_told(
    broker: KerberosBroker, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = realm.keytab("patient")
    deaf = tmp_path / "krb5.conf"
    deaf.write_text(re.sub(r"kdc = 127.0.0.1:\d+", "kdc = 127.0.0.1:1", realm.config.read_text()))
    monkeypatch.setenv("KRB5_CONFIG", str(deaf))
    with pytest.raises(AuthenticationError, match=f"Cannot contact any KDC for realm '{REALM}'"):
        ask(broker.address(), by_keytab(keytab, "patient"))


def test_a_service_that_the_kdc_does_not_know_is_named(either: KerberosBroker, realm: Realm) -> None:
    jaas = by_keytab(realm.keytab("alice"), "alice")
    with pytest.raises(
        AuthenticationError, match=r"no ticket for wrong/localhost.*sasl\.kerberos\.service\.name"
    ):
        ask(either.address(), jaas, sasl_kerberos_service_name="wrong")


def test_a_service_that_is_not_this_brokers_is_refused(broker: KerberosBroker, realm: Realm) -> None:
    realm.keytab("other/localhost")
    before = broker.logged
    jaas = by_keytab(realm.keytab("alice"), "alice")
    with pytest.raises(AuthenticationError, match="refused the login by GSSAPI"):
        ask(broker.address(), jaas, sasl_kerberos_service_name="other")
    broker.wait_logged("GSSAPI: its ticket is refused: ", before)


def test_a_ticket_that_has_ended_is_refused(either: KerberosBroker, realm: Realm) -> None:
    cache = realm.tickets("alice", realm.keytab("alice"), lifetime_s=1)
    ended = time.time() + 1.5
    while time.time() < ended:
        time.sleep(0.05)
    with pytest.raises(AuthenticationError, match="kinit"):
        ask(either.address(), f'{MODULE} required useTicketCache=true ticketCache="{cache}";')


def test_a_principal_that_no_rule_names_is_refused(
    broker: KerberosBroker, realm: Realm, tmp_path: Path
) -> None:
    running = Tidelog(tmp_path / "rules")
    ports = {"CLIENTS": free_port()}
    running.options = {
        **listener_options(running.address, ports, broker.keytab),
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](a.*)",
    }
    running.start()
    try:
        address = f"localhost:{ports['CLIENTS']}"
        assert ask(address, by_keytab(realm.keytab("alice"), "alice"))
        with pytest.raises(AuthenticationError, match="invalid credentials with SASL mechanism GSSAPI"):
            ask(address, by_keytab(realm.keytab("dora"), "dora"))
        assert f"no rule applies to its principal dora@{REALM}" in running.last_output()
    finally:
        running.stop()


# Attacks


def ticket_of(realm: Realm, user: str, service: str = "kafka") -> tuple[Context, bytes]:
    context = library.initiate(
        KerberosLogin(f"{user}@{REALM}", str(realm.keytab(user))), "", service, "localhost"
    )
    return context, context.step(None)


def is_refused(client: RawClient, answer: SaslAuthenticateResponse) -> bool:
    told = answer.error_message or ""
    assert "invalid credentials with SASL mechanism GSSAPI" in told
    return answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED and client.is_closed()


def test_a_ticket_is_good_once(broker: KerberosBroker, realm: Realm) -> None:
    _, token = ticket_of(realm, "alice")
    with broker.raw() as client:
        shake_hands(client, "GSSAPI")
        assert authenticate(client, token).error_code == ErrorCode.NONE
    before = broker.logged
    with broker.raw() as thief:
        shake_hands(thief, "GSSAPI")
        assert is_refused(thief, authenticate(thief, token))
    broker.wait_logged("Request is a replay", before)


def test_a_ticket_that_was_kept_for_too_long_is_refused(realm: Realm, tmp_path: Path) -> None:
    """Which is what a clock that differs looks like to the broker."""
    running = Tidelog(tmp_path / "strict")
    ports = {"CLIENTS": free_port()}
    running.options = listener_options(running.address, ports, realm.keytab(SERVICE))
    with realm.environment():
        os.environ["KRB5_CONFIG"] = str(realm.config_with(1))
        running.start()
    try:
        _, token = ticket_of(realm, "alice")
        late = time.time() + 2.5
        while time.time() < late:
            time.sleep(0.05)
        with RawClient("127.0.0.1", ports["CLIENTS"]) as client:
            shake_hands(client, "GSSAPI")
            assert is_refused(client, authenticate(client, token))
        assert "Clock skew too great" in running.last_output()
        assert "NTP" in running.last_output()
    finally:
        running.stop()


def hostile_tokens(token: bytes, chance: random.Random) -> Iterator[bytes]:
    yield b""
    yield b"\x60"
    yield b"\x60\x84\xff\xff\xff\xff"
    yield token + b"\0"
    yield token * 20
    yield b"\0" * 500_000
    yield bytes.fromhex("6082000006062b0601050502a0") + token  # SPNEGO
    for _ in range(40):
        yield token[: chance.randrange(1, len(token))]
        position = chance.randrange(len(token))
        yield token[:position] + bytes([token[position] ^ (1 << chance.randrange(8))]) + token[position + 1 :]
        yield chance.randbytes(chance.randrange(1, 2000))


def test_tokens_that_are_cut_changed_or_made_up_are_refused_alike_and_harm_nobody(
    broker: KerberosBroker, realm: Realm
) -> None:
    _, token = ticket_of(realm, "mallory")
    taken = 0
    for each in hostile_tokens(token, random.Random(15)):
        with broker.raw() as client:
            shake_hands(client, "GSSAPI")
            answer = authenticate(client, each)
            if answer.error_code == ErrorCode.NONE:
                # A bit that means nothing was turned; the proof that follows has to be right nevertheless.
                taken += 1
                answer = authenticate(client, b"forged")
            assert is_refused(client, answer)
    assert taken < 10
    assert "User:mallory" not in broker.users()
    assert "Unexpected error" not in broker.process.output.read_text(errors="replace")
    assert ask(broker.address(), by_keytab(realm.keytab("alice"), "alice"))
    assert broker.process.rss_bytes() < 200 << 20


@pytest.mark.parametrize(
    "choice",
    [
        b"\x01\0\0\0",
        b"wrapped \x01",
        b"wrapped \x02\0\0\0",
        b"wrapped \x04\xff\xff\xff",
        b"wrapped \0\0\0\0",
        b"wrapped ",
    ],
)
def test_a_layer_that_is_not_offered_and_a_choice_that_is_not_wrapped_are_refused(
    broker: KerberosBroker, realm: Realm, choice: bytes
) -> None:
    context, token = ticket_of(realm, "mallory")
    with broker.raw() as client:
        shake_hands(client, "GSSAPI")
        context.step(bytes(authenticate(client, token).auth_bytes))
        assert context.is_complete
        assert context.unwrap(bytes(authenticate(client, b"").auth_bytes)) == b"\x01\0\0\0"
        if choice.startswith(b"wrapped "):
            choice = context.wrap(choice.removeprefix(b"wrapped "))
        assert is_refused(client, authenticate(client, choice))
    assert "User:mallory" not in broker.users()


def test_messages_out_of_order_are_refused(broker: KerberosBroker, realm: Realm) -> None:
    context, token = ticket_of(realm, "mallory")
    with broker.raw() as client:
        shake_hands(client, "GSSAPI")
        context.step(bytes(authenticate(client, token).auth_bytes))
        # the choice before the offer
        assert is_refused(client, authenticate(client, context.wrap(b"\x01\0\0\0")))
    with broker.raw() as client:
        shake_hands(client, "GSSAPI")
        _, token = ticket_of(realm, "mallory")
        assert authenticate(client, token).error_code == ErrorCode.NONE
        # a second ticket where nothing is due
        assert is_refused(client, authenticate(client, ticket_of(realm, "mallory")[1]))
    with broker.raw() as client:
        client.send_frame(token)
        assert client.is_closed()


def test_a_message_above_the_limit_is_not_received(broker: KerberosBroker) -> None:
    with broker.raw() as client:
        shake_hands(client, "GSSAPI")
        client.send((600_000).to_bytes(4, "big"))
        assert client.is_closed()


def test_who_logs_in_again_as_somebody_else_is_closed(broker: KerberosBroker, realm: Realm) -> None:
    def log_in(client: RawClient, user: str) -> SaslAuthenticateResponse:
        shake_hands(client, "GSSAPI")
        context, token = ticket_of(realm, user)
        context.step(bytes(authenticate(client, token).auth_bytes))
        context.unwrap(bytes(authenticate(client, b"").auth_bytes))
        return authenticate(client, context.wrap(b"\x01\0\0\0"))

    with broker.raw("LIMITED") as client:
        assert log_in(client, "alice").session_lifetime_ms == SESSION_MS
        again = time.monotonic() + 1.1
        while time.monotonic() < again:
            time.sleep(0.05)
        assert is_refused_again(client, log_in(client, "dora"))


def is_refused_again(client: RawClient, answer: SaslAuthenticateResponse) -> bool:
    assert "during re-authentication" in (answer.error_message or "")
    return answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED and client.is_closed()
