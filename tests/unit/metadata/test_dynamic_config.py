from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.config_entries import ConfigEntry, ConfigSource, ConfigSynonym
from tidelog.config.options.topic_options import TopicConfig
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.feed import MetadataFeed
from tidelog.metadata.store import ensure_path, put
from tidelog.metadata.znodes import znodes


class Rig(NamedTuple):
    store: EmbeddedStore
    feed: MetadataFeed
    config: BrokerConfig
    configs: DynamicConfigs

    async def set_broker(self, entries: dict[str, str], *, every_broker: bool) -> None:
        """Replace all dynamic entries of this or of every broker."""
        stored = self.feed.image.broker_config(None if every_broker else self.config.node_id)
        await self.configs.change_broker(stored, lambda _: entries, every_broker=every_broker)


def _run(
    tmp_path: Path, scenario: Callable[[Rig], Awaitable[None]], raw: dict[str, str] | None = None
) -> None:
    async def main() -> None:
        store = EmbeddedStore(tmp_path, sync=lambda fd: None)
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(store, path)
        topic = znodes.TopicAssignment(topic_id=None, partitions={0: (1,)})
        await put(store, znodes.topic_path("t"), topic.encode())
        feed = await MetadataFeed.start(store)
        config = BrokerConfig(raw)
        configs = DynamicConfigs(store, feed, config)
        try:
            await scenario(Rig(store, feed, config, configs))
        finally:
            configs.close()
            await feed.close()
            await store.close()

    asyncio.run(main())


def _entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    [found] = [each for each in entries if each.name == name]
    return found


def test_a_topics_entries_take_effect_and_outlive_a_restart(tmp_path: Path) -> None:
    async def write(rig: Rig) -> None:
        await rig.configs.set_topic("t", {"retention.ms": "5", "cleanup.policy": "compact"})
        await rig.feed.caught_up()
        assert rig.configs.topic("t")["retention.ms"] == 5
        raw, _ = await rig.store.get("/config/topics/t")
        assert raw == b'{"version":1,"config":{"retention.ms":"5","cleanup.policy":"compact"}}'

    async def read(rig: Rig) -> None:
        assert rig.configs.topic("t")["cleanup.policy"] == ("compact",)
        assert rig.configs.topic("other")["cleanup.policy"] == ("delete",)

    _run(tmp_path, write)
    _run(tmp_path, read)


def test_a_brokers_entries_take_effect_and_outlive_a_restart(tmp_path: Path) -> None:
    async def write(rig: Rig) -> None:
        await rig.set_broker({"message.max.bytes": "111", "max.connections": "5"}, every_broker=True)
        await rig.set_broker({"message.max.bytes": "222"}, every_broker=False)
        await rig.feed.caught_up()
        assert rig.config.int("message.max.bytes") == 222
        assert rig.config.int("max.connections") == 5
        assert rig.configs.topic("t")["max.message.bytes"] == 222

    async def read(rig: Rig) -> None:
        assert rig.config.int("message.max.bytes") == 222
        await rig.set_broker({}, every_broker=False)
        await rig.feed.caught_up()
        assert rig.config.int("message.max.bytes") == 111

    _run(tmp_path, write)
    _run(tmp_path, read)


def test_a_topics_value_says_where_it_comes_from_at_every_level(tmp_path: Path) -> None:
    default = ConfigSynonym("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG)
    static = ConfigSynonym("message.max.bytes", "10", ConfigSource.STATIC_BROKER_CONFIG)
    cluster = ConfigSynonym("message.max.bytes", "20", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    broker = ConfigSynonym("message.max.bytes", "30", ConfigSource.DYNAMIC_BROKER_CONFIG)
    topic = ConfigSynonym("max.message.bytes", "40", ConfigSource.TOPIC_CONFIG)

    async def scenario(rig: Rig) -> None:
        async def described() -> ConfigEntry:
            await rig.feed.caught_up()
            return _entry(rig.configs.describe_topic("t"), "max.message.bytes")

        assert (await described()).synonyms == (static, default)
        await rig.set_broker({"message.max.bytes": "20"}, every_broker=True)
        assert (await described()).synonyms == (cluster, static, default)
        await rig.set_broker({"message.max.bytes": "30"}, every_broker=False)
        assert (await described()).synonyms == (broker, cluster, static, default)
        await rig.configs.set_topic("t", {"max.message.bytes": "40"})
        entry = await described()
        assert entry.synonyms == (topic, broker, cluster, static, default)
        assert (entry.value, entry.source, entry.read_only) == ("40", ConfigSource.TOPIC_CONFIG, False)

    _run(tmp_path, scenario, {"message.max.bytes": "10"})


def test_a_value_from_a_coarser_unit_has_no_synonyms_as_in_kafka(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        entry = _entry(rig.configs.describe_topic("t"), "retention.ms")
        assert (entry.value, entry.source, entry.synonyms) == ("3600000", ConfigSource.DEFAULT_CONFIG, ())
        await rig.set_broker({"log.retention.ms": "9"}, every_broker=True)
        await rig.feed.caught_up()
        entry = _entry(rig.configs.describe_topic("t"), "retention.ms")
        assert [(each.name, each.value) for each in entry.synonyms] == [
            ("log.retention.ms", "9"),
            ("log.retention.hours", "1"),
            ("log.retention.hours", "168"),
        ]

    _run(tmp_path, scenario, {"log.retention.hours": "1"})


def test_a_topic_has_every_option_but_internal_ones_that_are_not_set(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        names = [entry.name for entry in rig.configs.describe_topic("t")]
        assert len(names) == 33
        assert "internal.segment.bytes" not in names
        await rig.configs.set_topic("t", {"internal.segment.bytes": "100"})
        await rig.feed.caught_up()
        assert _entry(rig.configs.describe_topic("t"), "internal.segment.bytes").value == "100"

    _run(tmp_path, scenario)


def test_a_broker_has_every_option_with_type_source_and_whether_it_can_change(tmp_path: Path) -> None:
    raw = {"node.id": "1", "log.dirs": "/x", "num.io.threads": "4", "my.own": "5"}

    async def scenario(rig: Rig) -> None:
        entries = rig.configs.describe_broker()
        node_id = _entry(entries, "node.id")
        assert (node_id.value, node_id.source, node_id.read_only, node_id.type) == (
            "1",
            ConfigSource.STATIC_BROKER_CONFIG,
            True,
            3,
        )
        policy = _entry(entries, "log.cleanup.policy")
        assert (policy.value, policy.source, policy.read_only, policy.type) == (
            "delete",
            ConfigSource.DEFAULT_CONFIG,
            False,
            7,
        )
        assert _entry(entries, "log.retention.ms").value is None
        threads = _entry(entries, "num.io.threads")
        assert (threads.value, threads.sensitive, threads.read_only) == ("4", False, False)
        hidden = _entry(entries, "my.own")
        assert (hidden.value, hidden.sensitive) == (None, True)
        assert [each.value for each in hidden.synonyms] == [None]
        assert "producer.id.expiration.check.interval.ms" not in [entry.name for entry in entries]
        assert all(entry.documentation for entry in entries if entry.type)

    _run(tmp_path, scenario, raw)


def test_the_default_of_all_brokers_has_only_its_own_entries(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        assert rig.configs.describe_default_broker() == []
        await rig.set_broker({"message.max.bytes": "20", "my.own": "x"}, every_broker=True)
        await rig.set_broker({"message.max.bytes": "30"}, every_broker=False)
        await rig.feed.caught_up()
        [known, unknown] = rig.configs.describe_default_broker()
        assert (known.name, known.value) == ("message.max.bytes", "20")
        assert known.synonyms == (
            ConfigSynonym("message.max.bytes", "20", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        )
        assert (unknown.name, unknown.value, unknown.sensitive, unknown.type) == ("my.own", None, True, 0)

    _run(tmp_path, scenario)


# Codes and messages as Kafka 4.3 answered IncrementalAlterConfigs on a broker.
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"log.dirs": "/x"}, "Cannot update these configs dynamically: [log.dirs]"),
        ({"node.id": "4", "listeners": "x"}, "Cannot update these configs dynamically: [listeners, node.id]"),
        ({"process.roles": "broker"}, "Cannot update these configs dynamically: [process.roles]"),
        (
            {"log.retention.ms": "x"},
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        (
            {"log.segment.bytes": "100"},
            "Invalid value 100 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip can be set to zero only if "
            "max.connections.per.ip.overrides property is set",
        ),
    ],
)
@pytest.mark.parametrize("every_broker", [True, False])
def test_broker_entries_that_cannot_be_are_refused_and_nothing_is_written(
    tmp_path: Path, entries: dict[str, str], message: str, every_broker: bool
) -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(KafkaError) as refusal:
            await rig.set_broker(entries, every_broker=every_broker)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
        assert refusal.value.message == message
        assert not await rig.store.children("/config/brokers")

    _run(tmp_path, scenario)


def test_a_change_is_checked_together_with_the_other_levels(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.set_broker({"log.cleaner.min.compaction.lag.ms": "100"}, every_broker=False)
        await rig.feed.caught_up()
        with pytest.raises(KafkaError, match=r"log\.cleaner\.min\.compaction\.lag\.ms"):
            await rig.configs.check_broker({"log.cleaner.max.compaction.lag.ms": "50"}, every_broker=True)
        with pytest.raises(KafkaError, match="conflict topic config setting"):
            rig.configs.check_topic({"max.compaction.lag.ms": "50"})

    _run(tmp_path, scenario)


def test_options_without_effect_that_kafka_takes_are_kept_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.set_broker({"num.io.threads": "9", "num.replica.fetchers": "2"}, every_broker=False)
        await rig.feed.caught_up()
        assert _entry(rig.configs.describe_broker(), "num.io.threads").value == "9"
        assert any("have no effect: num.io.threads, num.replica.fetchers" in m for m in caplog.messages)

    _run(tmp_path, scenario)


def test_those_concerned_hear_of_changes_once_they_are_in_effect(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        brokers: list[frozenset[str]] = []
        topics: list[tuple[str, object]] = []

        def on_topic(name: str, config: TopicConfig) -> None:
            topics.append((name, config["max.message.bytes"]))

        rig.configs.on_broker_change(brokers.append)
        rig.configs.on_topic_change(on_topic)
        await rig.configs.set_topic("t", {"max.message.bytes": "7"})
        await rig.configs.set_topic("unknown", {"max.message.bytes": "8"})
        await rig.feed.caught_up()
        assert (brokers, topics) == ([], [("t", 7)])
        await rig.set_broker({"max.connections": "3"}, every_broker=True)
        await rig.feed.caught_up()
        assert (brokers, topics) == ([frozenset({"max.connections"})], [("t", 7)])
        await rig.configs.set_topic("t", {})
        await rig.set_broker({"message.max.bytes": "9"}, every_broker=False)
        await rig.feed.caught_up()
        assert brokers[1:] == [frozenset({"message.max.bytes"})]
        assert topics[-1] == ("t", 9)

    _run(tmp_path, scenario)


def test_what_the_store_holds_and_nobody_can_use_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def spoil(rig: Rig) -> None:
        topic = znodes.encode_config(
            {"segment.bytes": "13", "message.format.version": "2.0", "flush.ms": "6"}
        )
        broker = znodes.encode_config({"log.dirs": "/x", "message.max.bytes": "big", "max.connections": "3"})
        await put(rig.store, znodes.topic_config_path("t"), topic)
        await put(rig.store, znodes.broker_config_path(1), broker)
        await rig.feed.caught_up()
        assert rig.config.int("max.connections") == 3

    async def scenario(rig: Rig) -> None:
        topic = rig.configs.topic("t")
        assert (topic["segment.bytes"], topic["flush.ms"]) == (1 << 30, 6)
        assert rig.config.int("max.connections") == 3
        assert rig.config.int("message.max.bytes") == 1048588
        assert any("log.dirs, message.max.bytes" in message for message in caplog.messages)
        assert any("Topic t has a config that cannot be used" in message for message in caplog.messages)
        assert _entry(rig.configs.describe_topic("t"), "segment.bytes").source is ConfigSource.DEFAULT_CONFIG

    _run(tmp_path, spoil)
    _run(tmp_path, scenario)


def test_a_config_that_cannot_be_used_is_named_once_and_again_when_it_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        async def store(entries: dict[str, str]) -> None:
            await put(rig.store, znodes.topic_config_path("t"), znodes.encode_config(entries))
            await rig.feed.caught_up()
            rig.configs.topic("t")

        def warnings() -> int:
            return sum("Topic t has a config that cannot be used" in each for each in caplog.messages)

        bad = {"segment.bytes": "13"}
        await store(bad)
        await store({**bad, "flush.ms": "6"})
        assert warnings() == 1
        await store({"segment.bytes": "1048576"})
        await store(bad)
        assert warnings() == 2
        # Nothing is remembered of a topic that is gone: topics may come and go for years.
        topic, _ = await rig.store.get(znodes.topic_path("t"))
        await rig.store.delete(znodes.topic_path("t"))
        await rig.store.delete(znodes.topic_config_path("t"))
        await rig.feed.caught_up()
        await put(rig.store, znodes.topic_path("t"), topic)
        await store(bad)
        assert warnings() == 3
        # In a cluster the end of a topic is told, and not that of its config.
        await rig.store.delete(znodes.topic_path("t"))
        await rig.feed.caught_up()
        await put(rig.store, znodes.topic_path("t"), topic)
        await rig.feed.caught_up()
        rig.configs.topic("t")
        assert warnings() == 4

    _run(tmp_path, scenario)


def test_segments_that_kafka_3_lets_be_smaller_are_as_small_as_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = {"segment.bytes": "524288", "cleanup.policy": "compact"}

    async def scenario(rig: Rig) -> None:
        await put(rig.store, znodes.topic_config_path("t"), znodes.encode_config(small))
        broker = znodes.broker_config_path(None)
        await put(rig.store, broker, znodes.encode_config({"log.segment.bytes": "14"}))
        await rig.feed.caught_up()
        for _ in range(2):
            assert rig.configs.topic("t")["segment.bytes"] == 1 << 20
        entry = _entry(rig.configs.describe_topic("t"), "segment.bytes")
        assert (entry.value, entry.source) == ("1048576", ConfigSource.TOPIC_CONFIG)
        assert sum("segment.bytes=524288" in message for message in caplog.messages) == 1
        assert rig.configs.topic("other")["segment.bytes"] == 1 << 20
        # Other options can be changed, and what is stored stays for those who can use it.
        stored = rig.feed.image.broker_config(None)
        await rig.configs.change_broker(
            stored, lambda now: {**now, "max.connections": "3"}, every_broker=True
        )
        await rig.feed.caught_up()
        assert rig.config.int("max.connections") == 3
        assert rig.feed.image.broker_config(None) == {"log.segment.bytes": "14", "max.connections": "3"}
        with pytest.raises(KafkaError, match=r"log\.segment\.bytes"):
            await rig.configs.change_broker(stored, lambda _: {"log.segment.bytes": "15"}, every_broker=True)

    _run(tmp_path, scenario)


def test_what_is_stored_for_a_topic_and_cannot_be_used_hinders_no_other_change(tmp_path: Path) -> None:
    stored = {"segment.bytes": "524288", "remote.storage.enable": "true", "retention.ms": "?", "new": "1"}

    async def scenario(rig: Rig) -> None:
        rig.configs.check_topic_change(stored, {**stored, "flush.ms": "7"})
        for change in ({"segment.bytes": "524289"}, {"flush.ms": "?"}, {"newer": "1"}, {"new": "2"}):
            with pytest.raises(KafkaError):
                rig.configs.check_topic_change(stored, {**stored, **change})

    _run(tmp_path, scenario)


def test_stored_entries_that_contradict_each_other_are_passed_over(tmp_path: Path) -> None:
    async def spoil(rig: Rig) -> None:
        await put(rig.store, znodes.broker_config_path(None), znodes.encode_config({"log.retention.ms": "0"}))
        await rig.feed.caught_up()

    async def scenario(rig: Rig) -> None:
        assert rig.config.get("log.retention.ms") is None

    _run(tmp_path, spoil)
    _run(tmp_path, scenario)


def test_a_broker_of_a_cluster_lists_what_kafka_3_has(tmp_path: Path) -> None:
    async def look(rig: Rig) -> None:
        names = {entry.name for entry in rig.configs.describe_broker()}
        assert {"zookeeper.connect", "zookeeper.session.timeout.ms", "control.plane.listener.name"} <= names
        assert "leader.replication.throttled.rate" not in names

    _run(tmp_path, look, {"zookeeper.connect": "127.0.0.1:2181"})


def test_protection_that_the_store_asks_for_stops_the_start(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        for which in (None, 1):
            entries = znodes.encode_config({"principal.builder.class": "org.example.Builder"})
            await put(rig.store, znodes.broker_config_path(which), entries)
            await rig.feed.caught_up()
            with pytest.raises(
                ConfigError, match=r"dynamic options of /config/brokers/.* principal\.builder\.class"
            ):
                DynamicConfigs(rig.store, rig.feed, BrokerConfig({"node.id": "1"}))
            await put(rig.store, znodes.broker_config_path(which), znodes.encode_config({}))
            await rig.feed.caught_up()

    _run(tmp_path, scenario)


def test_what_others_ask_for_while_the_broker_runs_keeps_nothing_else_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        entries = {"principal.builder.class": "org.example.Builder", "message.max.bytes": "222"}
        await put(rig.store, znodes.broker_config_path(None), znodes.encode_config(entries))
        await rig.feed.caught_up()
        assert rig.config.int("message.max.bytes") == 222
        assert "cannot be used are passed over: principal.builder.class" in caplog.text

    _run(tmp_path, scenario)


def test_protection_cannot_be_asked_for_dynamically(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        for name in ("ssl.provider", "listener.name.internal.ssl.provider"):
            with pytest.raises(KafkaError, match="this release cannot honour") as refusal:
                await rig.set_broker({name: "/x"}, every_broker=False)
            assert refusal.value.code is ErrorCode.INVALID_REQUEST
        assert not await rig.store.children("/config/brokers")

    _run(tmp_path, scenario)


def test_tls_changes_only_for_one_listener_of_one_broker_and_only_its_stores(tmp_path: Path) -> None:
    location = "listener.name.plaintext.ssl.keystore.location"
    auth = "listener.name.plaintext.ssl.client.auth"

    async def scenario(rig: Rig) -> None:
        async def refused(name: str, value: str, words: str, *, every_broker: bool = False) -> None:
            with pytest.raises(KafkaError, match=words) as refusal:
                await rig.set_broker({name: value}, every_broker=every_broker)
            assert refusal.value.code is ErrorCode.INVALID_REQUEST

        await refused("ssl.keystore.location", "/x", "only per-listener using the listener prefix")
        await refused("ssl.cipher.suites", "", "only per-listener using the listener prefix")
        await refused(location, "/x", "at default cluster level", every_broker=True)
        await refused(auth, "required", "cannot be updated dynamically for existing listener PLAINTEXT")
        await refused("ssl.principal.mapping.rules", "DEFAULT", "Cannot update these configs dynamically")
        await rig.set_broker({location: "/x"}, every_broker=False)
        await rig.feed.caught_up()
        assert rig.config.for_listener("PLAINTEXT").str("ssl.keystore.location") == "/x"
        entries = {each.name: each for each in rig.configs.describe_broker()}
        assert entries[location].value == "/x"
        assert not entries[location].read_only
        await rig.set_broker({"listener.name.plaintext.ssl.key.password": "hush"}, every_broker=False)
        await rig.feed.caught_up()
        described = {each.name: each for each in rig.configs.describe_broker()}
        assert described["listener.name.plaintext.ssl.key.password"].value is None

    _run(tmp_path, scenario)


STORE_PASSWORD = "listener.name.plaintext.ssl.keystore.password"


def test_a_password_is_kept_encrypted_and_known_after_a_restart(tmp_path: Path) -> None:
    raw = {"password.encoder.secret": "of the brokers", "password.encoder.iterations": "1024"}

    async def write(rig: Rig) -> None:
        await rig.set_broker({STORE_PASSWORD: "hunter2"}, every_broker=False)
        await rig.feed.caught_up()
        kept, _ = await rig.store.get("/config/brokers/1")
        assert b"hunter2" not in kept
        assert b"encryptedPassword:" in kept
        assert rig.config.for_listener("PLAINTEXT").str("ssl.keystore.password") == "hunter2"
        # What has not changed is not encrypted anew, so that others see no change either.
        await rig.set_broker({STORE_PASSWORD: "hunter2", "log.cleaner.threads": "2"}, every_broker=False)
        again, _ = await rig.store.get("/config/brokers/1")
        assert kept.split(b"salt:")[1][:300] in again
        assert _entry(rig.configs.describe_broker(), STORE_PASSWORD).value is None

    async def read(rig: Rig) -> None:
        assert rig.config.for_listener("PLAINTEXT").str("ssl.keystore.password") == "hunter2"

    async def read_in_vain(rig: Rig) -> None:
        assert rig.config.for_listener("PLAINTEXT").optional_str("ssl.keystore.password") is None

    _run(tmp_path, write, raw)
    _run(tmp_path, read, raw)
    _run(tmp_path, read, {"password.encoder.secret": "new", "password.encoder.old.secret": "of the brokers"})
    _run(tmp_path, read_in_vain, {"password.encoder.secret": "another"})


def test_a_password_is_not_put_into_zookeeper_as_it_is(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(KafkaError, match=r"set password\.encoder\.secret on all brokers") as refusal:
            await rig.set_broker({STORE_PASSWORD: "hunter2"}, every_broker=False)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
        assert "hunter2" not in str(refusal.value)
        assert not await rig.store.children("/config/brokers")

    _run(tmp_path, scenario, {"zookeeper.connect": "localhost:1"})


def test_a_broker_alone_keeps_a_password_without_a_secret(tmp_path: Path) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.set_broker({STORE_PASSWORD: "hunter2"}, every_broker=False)
        await rig.feed.caught_up()
        assert rig.config.for_listener("PLAINTEXT").str("ssl.keystore.password") == "hunter2"

    _run(tmp_path, scenario)


def test_a_length_that_no_key_has_is_refused_at_the_start(tmp_path: Path) -> None:
    async def never(rig: Rig) -> None:
        raise AssertionError("it has started")

    with pytest.raises(ConfigError, match=r"password\.encoder\.key\.length is 100.*use 128, 192, 256"):
        _run(tmp_path, never, {"password.encoder.secret": "x", "password.encoder.key.length": "100"})
