from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.config.options.authorizer_options import super_users
from tidelog.errors import ConfigError
from tidelog.security.principal import Principal

ZOOKEEPER_MODE = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""

COMBINED_MODE = """
process.roles=broker,controller
node.id=3
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs=/a/one, /b/two
"""


def _load(tmp_path: Path, text: str, **overrides: str) -> tuple[BrokerConfig, list[str]]:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return BrokerConfig.load(path, overrides)


def _refusal(**raw: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig({name.replace("_", "."): value for name, value in raw.items()})
    return str(refusal.value)


def test_a_zookeeper_mode_file_starts_unchanged_with_one_warning(tmp_path: Path) -> None:
    config, warnings = _load(tmp_path, ZOOKEEPER_MODE)
    assert config.node_id == 0
    assert config.listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert warnings == [
        "These options of Kafka's have no effect in this release: num.io.threads, num.network.threads"
    ]


def test_a_combined_mode_file_starts_without_its_controller_listener(tmp_path: Path) -> None:
    config, warnings = _load(tmp_path, COMBINED_MODE)
    assert config.node_id == 3
    assert config.get("broker.id") == 3
    assert config.listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert config.log_dirs == (Path("/a/one"), Path("/b/two"))
    assert len(warnings) == 1
    assert "process.roles" in warnings[0]


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=4\nlog.dirs=/x")
    config, _ = BrokerConfig.load(path, {"num.partitions": "7"})
    assert config.int("num.partitions") == 7
    assert config.log_dirs == (Path("/x"),)


def test_no_file_gives_kafkas_defaults() -> None:
    config, warnings = BrokerConfig.load(None)
    assert warnings == []
    assert config.node_id == 1
    assert config.int("log.segment.bytes") == 1 << 30
    assert config.log_dirs == (Path("/tmp/kafka-logs"),)
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.bool("auto.create.topics.enable") is True
    assert config.list("log.cleanup.policy") == ("delete",)
    assert config.optional_int("log.retention.ms") is None
    assert config.rack is None
    assert config.inter_broker_listener_name == "PLAINTEXT"


def test_a_misspelt_option_is_a_warning_with_a_suggestion(tmp_path: Path) -> None:
    _, warnings = _load(tmp_path, "log.segment.byte=1\nmy.own.thing=2\nzookeeper.conect=x")
    assert warnings == [
        "Unknown options are ignored: log.segment.byte (did you mean log.segment.bytes?), my.own.thing, "
        "zookeeper.conect (did you mean zookeeper.connect?)"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "ssl.engine.factory.class=org.example.Factory",
        "ssl.provider=BCJSSE",
        "ssl.trustmanager.algorithm=Custom",
        "delegation.token.master.key=hunter2",
        "principal.builder.class=org.example.Builder",
        "zookeeper.ssl.crl.enable=true",
        "listener.name.internal.ssl.engine.factory.class=org.example.Factory",
    ],
)
def test_what_looks_like_protection_is_honoured_or_stops_the_start(tmp_path: Path, line: str) -> None:
    name, _, value = line.partition("=")
    with pytest.raises(ConfigError) as refusal:
        _load(tmp_path, f"{ZOOKEEPER_MODE}\n{line}\n")
    assert str(refusal.value).startswith(f"{name}: this release cannot honour")
    assert "Remove the options to run without that protection" in str(refusal.value)
    assert value not in str(refusal.value)


@pytest.mark.parametrize(
    "line",
    [
        "ssl.trustmanager.algorithm=PKIX",
        "zookeeper.ssl.ocsp.enable=false",
        "listener.name.internal.ssl.keymanager.algorithm=SunX509",
    ],
)
def test_protection_that_is_switched_off_stops_nothing(tmp_path: Path, line: str) -> None:
    config, warnings = _load(tmp_path, f"{ZOOKEEPER_MODE}\n{line}\n")
    assert config.node_id == 0
    assert line.partition("=")[0] in warnings[0]


def test_all_protection_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.provider, zookeeper\.ssl\.crl\.enable: "):
        _load(tmp_path, "zookeeper.ssl.crl.enable=true\nssl.provider=Mine\n")


@pytest.mark.parametrize(
    "name",
    [
        "kafka.security.authorizer.AclAuthorizer",
        "kafka.security.auth.SimpleAclAuthorizer",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ],
)
def test_kafkas_authorizers_are_honoured_by_their_names(tmp_path: Path, name: str) -> None:
    config, warnings = _load(
        tmp_path,
        f"{ZOOKEEPER_MODE}\nauthorizer.class.name={name}\nsuper.users=User:a;User:CN=b,O=c\n"
        "authorizer.zookeeper.session.timeout.ms=1\n",
    )
    assert config.str("authorizer.class.name") == name
    assert config.bool("allow.everyone.if.no.acl.found") is False
    assert super_users(config.str("super.users")) == [Principal("a"), Principal("CN=b,O=c")]
    assert "authorizer.class.name" not in warnings[0]
    assert "authorizer.zookeeper.session.timeout.ms" in warnings[0]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("authorizer.class.name=org.example.Mine", "org.example.Mine is a class of its own"),
        ("super.users=User:admin", "super.users: without authorizer.class.name everybody may do"),
        ("allow.everyone.if.no.acl.found=false", "without authorizer.class.name everybody may do"),
        (
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=admin",
            "super.users: 'admin' is not a principal: write it as User:alice",
        ),
        (
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nauthorizer.zookeeper.url=zk:1",
            "authorizer.zookeeper.url: access rules are kept with all other metadata",
        ),
    ],
)
def test_access_control_that_cannot_be_honoured_stops_the_start(
    tmp_path: Path, lines: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        _load(tmp_path, f"{ZOOKEEPER_MODE}\n{lines}\n")


def test_options_of_tls_are_honoured_for_all_listeners_and_for_one(tmp_path: Path) -> None:
    lines = "listeners=A://:1\nlistener.security.protocol.map=A:SSL\ninter.broker.listener.name=A\n"
    config, warnings = _load(
        tmp_path, f"{lines}ssl.client.auth=requested\nlistener.name.a.ssl.client.auth=required\n"
    )
    assert not warnings
    assert config.for_listener("A").str("ssl.client.auth") == "required"
    assert config.str("ssl.client.auth") == "requested"


def test_options_of_a_listener_that_is_not_there_are_named(tmp_path: Path) -> None:
    _, warnings = _load(
        tmp_path, "listener.name.typo.max.connections=7\nlistener.name.ssl.ssl.client.auth=none\n"
    )
    assert warnings == [
        "There is no listener of the name that these options have: listener.name.ssl.ssl.client.auth, "
        "listener.name.typo.max.connections"
    ]


CLOSED = (
    "listeners=CLIENTS://:1\nlistener.security.protocol.map=CLIENTS:SSL\ninter.broker.listener.name=CLIENTS\n"
)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (
            "listener.name.clients.ssl.client.auht=required",
            "did you mean listener.name.clients.ssl.client.auth?",
        ),
        ("listener.name.clients.max.conections=1", "did you mean listener.name.clients.max.connections?"),
        ("listener.name.client.ssl.client.auth=required", "there is no listener client; name one of clients"),
        ("listener.name.CLIENTS.ssl.client.auth=required", "write listener.name.clients.ssl.client.auth"),
        ("listener.name.clients.scram-sha512.sasl.jaas.config=x", "'scram-sha512' is no SASL mechanism"),
        ("listener.name.clients.PLAIN.sasl.jaas.config=x", "it is one of gssapi, plain"),
        ("listener.name.clients.plain.ssl.client.auth=x", "write listener.name.clients.ssl.client.auth"),
        ("listener.name.clients.super.users=User:a", "it cannot be set for one listener; write super.users"),
        ("listener.names.clients.ssl.client.auth=required", "there is no such option"),
        ("ssl.client.auht=required", "did you mean ssl.client.auth?"),
        ("sasl.enabled.mechanism=PLAIN", "did you mean sasl.enabled.mechanisms?"),
        ("authorizer.class=kafka.security.authorizer.AclAuthorizer", "did you mean authorizer.class.name?"),
    ],
)
def test_a_misspelt_option_that_would_protect_stops_the_start(tmp_path: Path, line: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        _load(tmp_path, f"{CLOSED}{line}\n")
    assert str(refusal.value).startswith(line.partition("=")[0] + ": ")
    assert remedy in str(refusal.value)


@pytest.mark.parametrize(
    "line",
    [
        "listener.name.clients.ssl.client.auht=",
        "listener.name.controller.ssl.client.auth=required\ncontroller.listener.names=CONTROLLER",
        "listener.name.clients.num.network.threads=3",
        "metrics.listeners=https://127.0.0.1:2\nlistener.name.metrics.ssl.client.auth=required",
        "sasl.mechanism=PLAIN",
    ],
)
def test_what_stands_in_files_of_kafkas_stops_no_start(tmp_path: Path, line: str) -> None:
    _load(tmp_path, f"{CLOSED}{line}\n")


@pytest.mark.parametrize("name", ["User:a,User:b", "User:CN=a,OU=b, User:c", "user:a", "Group:a", "User:*"])
def test_super_users_who_could_never_be_anybody_stop_the_start(tmp_path: Path, name: str) -> None:
    lines = f"authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users={name};User:d\n"
    with pytest.raises(ConfigError, match=re.escape(f"super.users: '{name}' is nobody's name")):
        _load(tmp_path, lines)


def test_bad_values_are_refused_together_with_name_value_and_bounds() -> None:
    text = _refusal(log_segment_bytes="14", num_partitions="many")
    assert "Invalid value 14 for configuration log.segment.bytes: Value must be at least 1048576" in text
    assert "Invalid value many for configuration num.partitions: Not a number of type INT" in text
    assert "(allowed: at least 1)" in text


def test_an_accessor_refuses_an_option_of_another_type() -> None:
    config = BrokerConfig()
    with pytest.raises(TypeError, match=r"log\.cleanup\.policy is .* not a whole number"):
        config.int("log.cleanup.policy")
    with pytest.raises(TypeError, match="not a whole number"):
        config.int("auto.create.topics.enable")
    with pytest.raises(KeyError):
        config.int("no.such.option")


@pytest.mark.parametrize(
    ("raw", "node_id"),
    [
        ({"broker.id": "5"}, 5),
        ({"node.id": "5"}, 5),
        ({"node.id": "5", "broker.id": "5"}, 5),
        ({"broker.id": "-1"}, 1),
    ],
)
def test_node_id_and_broker_id_stand_for_each_other(raw: dict[str, str], node_id: int) -> None:
    assert BrokerConfig(raw).node_id == node_id


def test_different_ids_are_refused() -> None:
    assert "`node.id` to the same value as `broker.id`" in _refusal(node_id="1", broker_id="2")


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"listeners": "INSIDE://:9092"}, "No security protocol defined for listener INSIDE"),
        ({"listeners": "PLAINTEXT//:9092"}, "not of the form NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:99999"}, "a port is a number from 0 to 65535"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://b:2"}, "Each listener must have a different name"),
        ({"listeners": ""}, "must not be empty"),
        (
            {
                "listeners": "A://h:9092,B://i:9092",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name": "A",
            },
            "Each listener must have a different port",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot use the nonroutable meta-address 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot use the nonroutable meta-address"),
        (
            {
                "advertised.listeners": "OTHER://h:1",
                "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "advertised.listeners listener names must be equal to or a subset of the ones defined in",
        ),
        (
            {"listeners": "A://:1", "listener.security.protocol.map": "A:PLAINTEXT"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners",
        ),
        ({"listener.security.protocol.map": "A:TLS"}, "Invalid security protocol `TLS`"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "not of the form NAME:VALUE"),
        (
            {"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"},
            "There must be at least one broker advertised listener",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set",
        ),
    ],
)
def test_listeners_that_cannot_work_are_refused(raw: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig(raw)
    assert sentence in str(refusal.value)


def test_an_ipv4_and_an_ipv6_listener_may_share_a_port() -> None:
    config = BrokerConfig(
        {
            "listeners": "A://127.0.0.1:9092,B://[::1]:9092",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "inter.broker.listener.name": "a",
        }
    )
    assert [str(each) for each in config.listeners] == ["A://127.0.0.1:9092", "B://[::1]:9092"]


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "must be at least 1MB per cleaner thread"),
        (
            {"queued.max.request.bytes": "5"},
            "queued.max.request.bytes (5) must be larger or equal to socket.request.max.bytes (104857600)",
        ),
        ({"max.connections.per.ip": "0"}, "can be set to zero only if max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "a b:5"}, "contains invalid addresses : a b"),
        ({"max.connections.per.ip.overrides": "host:x"}, "is not a whole number"),
        (
            {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"},
            "log.cleaner.min.compaction.lag.ms (10) must not be larger than",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(raw: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig(raw)
    assert sentence in str(refusal.value)


def test_connection_overrides_are_parsed_with_ipv6_hosts() -> None:
    config = BrokerConfig(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "::1:7, host:3"}
    )
    assert config.max_connections_per_ip_overrides == {"::1": 7, "host": 3}


@pytest.mark.parametrize(
    ("raw", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-5"}, -1),
    ],
)
def test_the_finest_retention_unit_wins(raw: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig(raw).topic_defaults()["retention.ms"] == retention_ms


def test_topic_defaults_come_from_their_broker_options() -> None:
    defaults = BrokerConfig(
        {
            "log.roll.hours": "2",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "2000",
            "message.max.bytes": "77",
            "log.cleanup.policy": "compact,delete",
            "log.cleaner.min.cleanable.ratio": "0.1",
        }
    ).topic_defaults()
    assert defaults["segment.ms"] == 7_200_000
    assert defaults["segment.jitter.ms"] == 3_600_000
    assert defaults["flush.ms"] == 2000
    assert defaults["max.message.bytes"] == 77
    assert defaults["cleanup.policy"] == ("compact", "delete")
    assert defaults["min.cleanable.dirty.ratio"] == 0.1


def test_dynamic_entries_win_over_the_file_and_the_brokers_own_over_the_clusters() -> None:
    config = BrokerConfig({"message.max.bytes": "1"})
    assert config.apply_dynamic(
        {"message.max.bytes": "2", "log.retention.ms": "9"}, {"message.max.bytes": "3"}
    ) == {
        "message.max.bytes",
        "log.retention.ms",
    }
    assert config.int("message.max.bytes") == 3
    assert config.topic_defaults()["max.message.bytes"] == 3
    assert config.topic_defaults()["retention.ms"] == 9
    assert config.apply_dynamic({}, {}) == {"message.max.bytes", "log.retention.ms"}
    assert config.int("message.max.bytes") == 1


def test_a_dynamic_change_that_breaks_a_rule_changes_nothing() -> None:
    config = BrokerConfig()
    with pytest.raises(ConfigError, match=r"log\.retention\.ms"):
        config.apply_dynamic({"log.retention.ms": "0", "message.max.bytes": "5"}, {})
    assert config.int("message.max.bytes") == 1048588
