"""What DescribeConfigs tells: each option's effective value, where it comes from, and what stands behind it.

A topic's value comes from the topic, else from the broker option it takes its default from, and so does a
group's; a broker's from its own dynamic entries, those of all brokers, the properties file, or the built-in
default. The entries are version-neutral; the handler turns them into a response.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_metrics import CLIENT_METRICS_OPTIONS
from tidelog.config.options.authorizer_options import OF_AUTHORIZERS
from tidelog.config.options.broker_options import BROKER_OPTIONS, option_of
from tidelog.config.options.cluster_options import DYNAMIC_ONLY, ONLY_WITH_ZOOKEEPER
from tidelog.config.options.group_options import GROUP_OPTIONS, broker_synonym
from tidelog.config.options.topic_options import SYNONYMS, TOPIC_OPTIONS, TopicConfig
from tidelog.config.options.unsupported_options import DYNAMIC_UNSUPPORTED, KNOWN_UNSUPPORTED
from tidelog.options import render_value

UNKNOWN_TYPE = 0

_SECRET = re.compile(
    r"password|secret|jaas|passphrase|keystore\.(key|cert)|truststore\.cert|token|master\.key"
)


class ConfigSource(enum.IntEnum):
    """Where a value comes from; the number is the one DescribeConfigs sends."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """One of the places that a value could come from, the effective one first."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One option as DescribeConfigs shows it; ``type`` is 0 for an option nobody knows."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: int
    documentation: str | None
    synonyms: tuple[ConfigSynonym, ...]


class BrokerLayers(NamedTuple):
    """A broker's configuration, layer by layer, highest first; values are text."""

    config: BrokerConfig
    this_broker: Mapping[str, str]
    every_broker: Mapping[str, str]

    def synonyms(self, name: str, *, hidden: bool = False) -> tuple[ConfigSynonym, ...]:
        """Where ``name`` has a value, in order of precedence.

        As in Kafka the list starts at the first place that has ``name`` itself, so a value that comes only
        from a coarser unit (``log.retention.hours`` for ``log.retention.ms``) has none.
        """
        names = _TOGETHER.get(name, (name,))
        found = [
            ConfigSynonym(each, None if hidden else layer[each], source)
            for layer, source in (
                (self.this_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
                (self.every_broker, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
                (self.config.raw, ConfigSource.STATIC_BROKER_CONFIG),
                (_DEFAULTS, ConfigSource.DEFAULT_CONFIG),
            )
            for each in names
            if each in layer
        ]
        # Kafka does this to keep listener overrides out of the base option's list.
        start = next((index for index, each in enumerate(found) if each.name == name), len(found))
        return tuple(found[start:])

    def effective(self, name: str) -> str | None:
        """The value in force; the text itself where the option is not honoured."""
        if name in BROKER_OPTIONS:
            return self.config.render(name)
        return {**self.config.raw, **self.every_broker, **self.this_broker}.get(name)


_DEFAULTS: dict[str, str] = {
    name: text
    for name, option in BROKER_OPTIONS.items()
    if name not in DYNAMIC_ONLY and (text := option.render(option.default)) is not None
}

_TOGETHER: dict[str, tuple[str, ...]] = {
    synonym.name: tuple(each.name for each in group)
    for group in SYNONYMS.values()
    if len(group) > 1
    for synonym in group
    if synonym.name != "log.flush.scheduler.interval.ms"
}
"""Broker options that say the same in different units, finest first."""


def _may_be_secret(name: str) -> bool:
    """Whether the value of an option that is not honoured could be one that nobody may see."""
    return name not in KNOWN_UNSUPPORTED or _SECRET.search(name) is not None


def topic_entries(topic: TopicConfig, broker: BrokerLayers) -> list[ConfigEntry]:
    """Every option of a topic."""
    entries = []
    for name, option in TOPIC_OPTIONS.items():
        if option.internal and name not in topic.overrides:
            continue
        value = render_value(topic[name])
        synonyms = broker.synonyms(SYNONYMS[name][0].name) if name in SYNONYMS else ()
        if name in topic.overrides:
            synonyms = (ConfigSynonym(name, value, ConfigSource.TOPIC_CONFIG), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        entries.append(ConfigEntry(name, value, source, False, False, option.type, option.doc, synonyms))
    return entries


def group_entries(given: Mapping[str, str], broker: BrokerLayers) -> list[ConfigEntry]:
    """Every option of a group; ``given`` are its own."""
    entries = []
    for name, option in GROUP_OPTIONS.items():
        default = broker_synonym(name)
        value = option.render(option.default)
        synonyms = broker.synonyms(default)
        if synonyms:
            value = broker.effective(default)
        elif default not in KNOWN_UNSUPPORTED:
            synonyms = (ConfigSynonym(name, value, ConfigSource.DEFAULT_CONFIG),)
        if name in given:
            value = given[name]
            synonyms = (ConfigSynonym(name, value, ConfigSource.GROUP_CONFIG), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        entries.append(ConfigEntry(name, value, source, False, False, option.type, option.doc, synonyms))
    return entries


def client_metrics_entries(given: Mapping[str, str]) -> list[ConfigEntry]:
    """Every option of a subscription to clients' metrics; ``given`` are its own."""
    entries = []
    for name, option in CLIENT_METRICS_OPTIONS.items():
        value, source = option.render(option.default), ConfigSource.DEFAULT_CONFIG
        synonyms: tuple[ConfigSynonym, ...] = ()
        if name in given:
            value, source = given[name], ConfigSource.CLIENT_METRICS_CONFIG
            synonyms = (ConfigSynonym(name, value, source),)
        entries.append(ConfigEntry(name, value, source, False, False, option.type, option.doc, synonyms))
    return entries


def broker_entries(broker: BrokerLayers) -> list[ConfigEntry]:
    """Every option of a broker, those without effect too; a value of unknown type is not shown.

    What is given is always told; of the rest, what Kafka lists: 4.3 for a broker that stands alone, 3.9 for
    one of a cluster.
    """
    given = {**broker.config.raw, **broker.every_broker, **broker.this_broker}
    alone = broker.config.optional_str("zookeeper.connect") is None
    unlisted = DYNAMIC_ONLY | OF_AUTHORIZERS | (ONLY_WITH_ZOOKEEPER if alone else frozenset())
    honoured = [
        name
        for name, option in BROKER_OPTIONS.items()
        if name in given or not (option.internal or name in unlisted)
    ]
    others = sorted(name for name in given if name not in BROKER_OPTIONS)
    return [_broker_entry(name, broker) for name in (*honoured, *others)]


def default_broker_entries(broker: BrokerLayers) -> list[ConfigEntry]:
    """The dynamic options of every broker."""
    entries = []
    for name, value in broker.every_broker.items():
        entry = _broker_entry(name, broker)
        synonyms = tuple(
            each for each in entry.synonyms if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        )
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        shown = None if entry.sensitive else value
        entries.append(entry._replace(value=shown, source=source, synonyms=synonyms))
    return entries


def _broker_entry(name: str, broker: BrokerLayers) -> ConfigEntry:
    option = option_of(name)
    hidden = option.sensitive if option is not None else _may_be_secret(name)
    synonyms = broker.synonyms(name, hidden=hidden)
    return ConfigEntry(
        name=name,
        value=None if hidden else broker.effective(name),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=option.dynamic == "read-only" if option is not None else name not in DYNAMIC_UNSUPPORTED,
        sensitive=hidden,
        type=option.type if option is not None else UNKNOWN_TYPE,
        documentation=option.doc if option is not None else None,
        synonyms=synonyms,
    )
