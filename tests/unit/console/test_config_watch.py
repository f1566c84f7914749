"""Configs from look to look: what changed, and who it was."""

from __future__ import annotations

from tidelog.client.metadata import Node
from tidelog.client.resources import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResult,
    ConfigSource,
    ResourceType,
    TopicDescription,
)
from tidelog.console.watching.config_watch import ConfigWatch
from tidelog.console.watching.snapshot import Snapshot
from tidelog.ids import Uuid

TOPIC = ConfigResource(ResourceType.TOPIC, "orders")
BROKER = ConfigResource(ResourceType.BROKER, "2")
EVERY_BROKER = ConfigResource(ResourceType.BROKER, "")


def result(
    resource: ConfigResource, source: ConfigSource = ConfigSource.DYNAMIC_TOPIC_CONFIG, **values: str | None
) -> ConfigResult:
    entries = [
        ConfigEntry(name.replace("_", "."), value, source, is_sensitive=value is None)
        for name, value in values.items()
    ]
    defaults = ConfigEntry("cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG)
    return ConfigResult(resource, (*entries, defaults))


def test_values_that_are_set_changed_and_taken_back_are_told() -> None:
    watch = ConfigWatch(10.0)
    assert list(watch.compare(1, result(TOPIC))) == []
    (event,) = watch.compare(2, result(TOPIC, retention_ms="5"))
    assert (event.kind, event.args) == (
        "topic-config-set",
        {"topic": "orders", "config": "retention.ms", "now": "5"},
    )
    (event,) = watch.compare(3, result(TOPIC, retention_ms="6"))
    assert (event.args["before"], event.args["now"]) == ("5", "6")
    (event,) = watch.compare(4, result(TOPIC))
    assert (event.kind, event.args["before"]) == ("topic-config-removed", "6")
    assert list(watch.compare(5, result(TOPIC))) == []


def test_who_has_done_it_here_is_named_and_nobody_for_what_others_did() -> None:
    watch = ConfigWatch(10.0)
    list(watch.compare(1, result(TOPIC)))
    watch.note("alice", TOPIC, {"retention.ms": "5", "segment.bytes": "7"})
    mine, theirs = watch.compare(2, result(TOPIC, retention_ms="5", segment_bytes="8"))
    assert mine.args["user"] == "alice"
    assert "user" not in theirs.args  # somebody else was quicker
    (later,) = watch.compare(3, result(TOPIC, retention_ms="6", segment_bytes="8"))
    assert "user" not in later.args


def test_brokers_and_what_all_of_them_have_are_told_apart() -> None:
    watch = ConfigWatch(10.0)
    for each in (BROKER, EVERY_BROKER):
        list(watch.compare(1, result(each)))
    inherited = result(BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, log_cleaner_threads="2")
    assert list(watch.compare(2, inherited)) == []
    (event,) = watch.compare(
        2, result(EVERY_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, log_cleaner_threads="2")
    )
    assert (event.kind, event.args) == ("brokers-config-set", {"config": "log.cleaner.threads", "now": "2"})
    (event,) = watch.compare(3, result(BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG, log_cleaner_threads="3"))
    assert (event.kind, event.args["broker"]) == ("broker-config-set", 2)


def test_secrets_are_never_told() -> None:
    watch = ConfigWatch(10.0)
    list(watch.compare(1, result(BROKER)))
    (event,) = watch.compare(2, result(BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG, ssl_key_password=None))
    assert event.args["now"] == "••••••"


def test_many_topics_are_asked_for_in_parts_and_changed_ones_at_once() -> None:
    watch = ConfigWatch(10.0)
    cluster = ClusterDescription("c", None, (Node(2, "h", 9092),))
    topics = {
        f"t-{each:03}": TopicDescription(f"t-{each:03}", Uuid(bytes(16)), False, ()) for each in range(150)
    }

    def asked(at_s: float) -> set[str]:
        now = Snapshot(at_s, 0, cluster, topics, {}, {}, (), {}, {})
        return {each.name for each in watch.due(now)}

    first = asked(1.0)
    assert first == {"", "2", *sorted(topics)[:100]}
    assert asked(2.0) == set()
    watch.note("alice", ConfigResource(ResourceType.TOPIC, "t-003"), {"retention.ms": "1"})
    assert asked(3.0) == {"t-003"}
    assert asked(11.5) == {"", "2", *sorted(topics)[100:]}
    assert asked(22.0) == first


def test_a_throttle_of_replication_is_one_event() -> None:
    watch = ConfigWatch(10.0)
    brokers = [ConfigResource(ResourceType.BROKER, each) for each in ("1", "2")]
    own = ConfigSource.DYNAMIC_BROKER_CONFIG
    rates = {"leader_replication_throttled_rate": "7", "follower_replication_throttled_rate": "7"}
    before = [result(TOPIC), *(result(each) for each in brokers)]
    during = [
        result(TOPIC, leader_replication_throttled_replicas="0:1", retention_ms="5"),
        *(result(each, own, **rates) for each in brokers),
    ]
    assert watch.compare_all(1, before) == []
    kept, throttle = watch.compare_all(2, during)
    assert (kept.kind, kept.args["config"]) == ("topic-config-set", "retention.ms")
    assert (throttle.kind, throttle.args) == ("throttle-set", {"count": 2, "rate": "7"})
    assert [each.kind for each in watch.compare_all(3, before)] == [
        "topic-config-removed",
        "throttle-removed",
    ]
