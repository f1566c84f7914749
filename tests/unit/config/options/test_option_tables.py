"""The option tables against Kafka's own, as its ConfigDef prints them.

``kafka_4_options.tsv`` is Kafka 4.3's; ``kafka_3_options.tsv`` has those of Kafka 3.9 that Kafka 4 dropped
with ZooKeeper and that a cluster here still has, and those that are dynamic only, which stand in a table of
their own there.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.client.options import ADMIN, CONSUMER, PRODUCER
from tidelog.config.options.authorizer_options import OF_AUTHORIZERS
from tidelog.config.options.broker_options import BROKER_OPTIONS, SUBJECTS
from tidelog.config.options.group_options import GROUP_OPTIONS
from tidelog.config.options.topic_options import SYNONYMS, TOPIC_OPTIONS, TOPIC_SUBJECTS, resolve
from tidelog.config.options.unsupported_options import (
    DYNAMIC_UNSUPPORTED,
    KNOWN_UNSUPPORTED,
    UNSUPPORTED,
)
from tidelog.options import BadValueError, ConfigDef, Option, OptionType, display_name_of


class KafkaOption(NamedTuple):
    table: str
    name: str
    type: str
    default: str
    bounds: str
    importance: str
    mode: str
    internal: str


KAFKA = [
    KafkaOption(*line.split("\t"))
    for name in ("kafka_4_options.tsv", "kafka_3_options.tsv")
    for line in (Path(__file__).parent / name).read_text().splitlines()
]
KAFKA_BROKER = {each.name: each for each in KAFKA if each.table == "broker"}
KAFKA_TOPIC = {each.name: each for each in KAFKA if each.table == "topic"}

# node.id and controller.listener.names are required in Kafka; a broker here starts without a file.
OWN_DEFAULTS = {"node.id", "controller.listener.names"}
# Kafka can open and close listeners, and load and unload reporters, while it runs.
OWN_MODES = {"listeners", "listener.security.protocol.map", "metric.reporters"}

# What Kafka has no option for; listed by DescribeConfigs only where it is set.
OWN_OPTIONS = [name for name in BROKER_OPTIONS if name.startswith(("tidelog.", "metrics.listeners"))]

HONOURED = [
    (each, KAFKA_BROKER[each.name])
    for each in BROKER_OPTIONS.values()
    if each.name not in OWN_OPTIONS and each.name not in OF_AUTHORIZERS
]
TOPIC = [(each, KAFKA_TOPIC[each.name]) for each in TOPIC_OPTIONS.values()]


def _name(value: object) -> str:
    return value.name if isinstance(value, Option) else ""


@pytest.mark.parametrize(("ours", "kafka"), HONOURED + TOPIC, ids=_name)
def test_an_option_is_what_it_is_in_kafka(ours: Option, kafka: KafkaOption) -> None:
    assert ours.type.name.lower() == kafka.type
    assert ours.importance == kafka.importance
    assert ours.internal == (kafka.internal == "internal")
    if ours.name not in OWN_DEFAULTS:
        assert ours.default == (None if kafka.default == "null" else ours.parse(kafka.default))
    if kafka.table == "broker" and ours.name not in OWN_MODES:
        assert ours.dynamic == kafka.mode


def _refused(option: Option, value: object) -> bool:
    try:
        option.parse(option.render(value))
    except BadValueError:
        return True
    return False


@pytest.mark.parametrize(("ours", "kafka"), HONOURED + TOPIC, ids=_name)
def test_an_option_has_kafkas_bounds(ours: Option, kafka: KafkaOption) -> None:
    bounds = kafka.bounds.removesuffix(" or -1")
    if not (bounds.startswith("[") and ",..." in bounds) or ours.type is OptionType.LIST:
        # The rest are words (checked below) or no bounds at all.
        if kafka.bounds == "null" and ours.type in (OptionType.INT, OptionType.LONG):
            assert not _refused(ours, -(2**31))
        return
    whole = ours.type is not OptionType.DOUBLE
    step: float = 1 if whole else 0.001
    low, *high = (int(part) for part in bounds.strip("[]").split(",") if part != "...")
    assert not _refused(ours, low if whole else float(low))
    assert _refused(ours, low - step) == (not kafka.bounds.endswith("or -1") or low - step != -1)
    for bound in high:
        assert not _refused(ours, bound if whole else float(bound))
        assert _refused(ours, bound + step)


@pytest.mark.parametrize(
    "name",
    [
        "compression.type",
        "log.message.timestamp.type",
        "security.inter.broker.protocol",
        "log.cleanup.policy",
    ],
)
def test_an_option_of_words_takes_kafkas_words_only(name: str) -> None:
    for word in KAFKA_BROKER[name].bounds.strip("[]").split(", "):
        BROKER_OPTIONS[name].parse(word)
    with pytest.raises(BadValueError, match="must be one of"):
        BROKER_OPTIONS[name].parse("something")


def test_every_topic_option_of_kafka_is_there() -> None:
    assert set(TOPIC_OPTIONS) == set(KAFKA_TOPIC)


def test_options_of_our_own_are_listed_only_where_they_are_set() -> None:
    assert all(BROKER_OPTIONS[name].internal for name in OWN_OPTIONS)


def test_every_broker_option_of_kafka_is_honoured_or_known_not_to_be() -> None:
    assert not KAFKA_BROKER.keys() - BROKER_OPTIONS.keys() - KNOWN_UNSUPPORTED


def test_no_option_is_both_honoured_and_not() -> None:
    assert not KNOWN_UNSUPPORTED & BROKER_OPTIONS.keys()


def test_the_stars_of_unsupported_options_are_kafkas_modes() -> None:
    changeable = {name for name, each in KAFKA_BROKER.items() if each.mode != "read-only"}
    assert DYNAMIC_UNSUPPORTED & KAFKA_BROKER.keys() == changeable - BROKER_OPTIONS.keys()


def test_an_unsupported_option_is_listed_once() -> None:
    listed = [name for group in UNSUPPORTED for name in group.names]
    assert len(listed) == len(set(listed))


def test_a_broker_without_configuration_gives_topics_kafkas_defaults() -> None:
    assert resolve(BROKER_OPTIONS.defaults()) == TOPIC_OPTIONS.defaults()


def test_topic_options_without_a_broker_option_are_those_of_kafka() -> None:
    assert TOPIC_OPTIONS.keys() - SYNONYMS.keys() == {
        "follower.replication.throttled.replicas",
        "internal.segment.bytes",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }


def test_a_synonym_is_a_broker_option_of_the_same_kind() -> None:
    for name, synonyms in SYNONYMS.items():
        assert TOPIC_OPTIONS[name].type is BROKER_OPTIONS[synonyms[0].name].type, name
        assert all(synonym.name in BROKER_OPTIONS for synonym in synonyms)


def test_every_option_is_documented_in_a_sentence() -> None:
    for each in (*BROKER_OPTIONS.values(), *TOPIC_OPTIONS.values()):
        assert each.doc.endswith("."), each.name
    assert sum(len(options) for options in SUBJECTS.values()) == len(BROKER_OPTIONS)


def test_every_topic_option_is_in_one_group() -> None:
    grouped = [each.name for options in TOPIC_SUBJECTS.values() for each in options]
    assert sorted(grouped) == sorted(TOPIC_OPTIONS)


@pytest.mark.parametrize(
    "table",
    [BROKER_OPTIONS, TOPIC_OPTIONS, GROUP_OPTIONS, *(kind.options for kind in (PRODUCER, CONSUMER, ADMIN))],
)
def test_every_option_has_a_group_a_place_and_a_display_name(table: ConfigDef) -> None:
    places = [(each.group, each.order) for each in table.values()]
    assert len(set(places)) == len(places)
    assert all(group and order for group, order in places)
    assert all(each.display_name[0].isupper() or each.display_name[0] == "g" for each in table.values())


def test_an_option_is_required_where_it_has_no_default() -> None:
    required = {each.name for each in (*PRODUCER.options.values(), *BROKER_OPTIONS.values()) if each.required}
    assert required == {"bootstrap.servers"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("log.retention.ms", "Log retention (ms)"),
        ("segment.bytes", "Segment size (bytes)"),
        ("num.partitions", "Number of partitions"),
        ("quota.window.num", "Quota window count"),
        ("ssl.keystore.location", "SSL keystore location"),
        ("min.insync.replicas", "Minimum in-sync replicas"),
        ("preallocate", "Preallocate"),
    ],
)
def test_a_display_name_follows_from_the_name(name: str, shown: str) -> None:
    assert display_name_of(name) == shown
