"""Configs of topics and brokers as pages show and change them: value, default, its origin, its doc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigType,
    ResourceType,
)
from tidelog.console.api.config_groups import BROKER_GROUPS, TOPIC_GROUPS, Groups
from tidelog.console.api.endpoint import Call
from tidelog.console.refusal import Refusal
from tidelog.console.watching.watched_cluster import WatchedCluster
from tidelog.options import display_name_of

_OWN = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
}
"""Where values come from that were set for the thing itself."""


class _Place(NamedTuple):
    """Where a config is shown."""

    group: str
    order: int


def _places(groups: Groups) -> dict[str, _Place]:
    names = ((group, name) for group, names in groups.items() for name in names)
    return {name: _Place(group, order) for order, (group, name) in enumerate(names, 1)}


_PLACES = {ResourceType.TOPIC: _places(TOPIC_GROUPS), ResourceType.BROKER: _places(BROKER_GROUPS)}
_ELSEWHERE = _Place("Other", 10_000)
_NEVER_EMPTY = frozenset(
    {ConfigType.BOOLEAN, ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE}
)


class ConfigRow(msgspec.Struct, frozen=True):
    """One config; ``value`` is None where it is secret or unset."""

    name: str
    value: str | None
    default: str | None
    source: str
    is_own: bool
    """Set for this very thing, and can be taken back."""
    is_read_only: bool
    is_sensitive: bool
    type: str
    documentation: str | None
    group: str
    """What it is shown with; rows are in the order of groups, and of configs in them."""
    order: int
    display_name: str
    is_required: bool
    """Whether a value must be given; else an empty one is a value."""


class ConfigChanges(msgspec.Struct, forbid_unknown_fields=True):
    """Configs to set; null takes a value back to what it would be without."""

    configs: dict[str, str | None]
    dry_run: bool = False


async def config_rows(cluster: WatchedCluster, resource: ConfigResource) -> list[ConfigRow]:
    """The configs of one thing, group by group; those that are in none come last, by name."""
    (found,) = await cluster.admin.describe_configs([resource], include_documentation=True)
    found.raise_for_error()
    places = _PLACES[resource.type]
    rows = [
        _row(each, resource, places.get(each.name, _ELSEWHERE))
        for each in sorted(found.entries, key=lambda each: each.name)
    ]
    return sorted(rows, key=lambda row: row.order)


async def change_configs(call: Call, resource: ConfigResource, asked: ConfigChanges) -> list[ConfigRow]:
    """Set or take back configs, and give them as they are then."""
    if not asked.configs:
        raise Refusal("specify at least one config to change")
    call.details |= {"configs": sorted(asked.configs), "dry_run": asked.dry_run}
    operations = {resource: alterations(asked.configs)}
    (done,) = await call.cluster.admin.alter_configs(operations, validate_only=asked.dry_run)
    done.raise_for_error()
    if not asked.dry_run:
        call.cluster.configs.note(call.person.name, resource, asked.configs)
        call.cluster.look_soon()
    return await config_rows(call.cluster, resource)


def alterations(configs: Mapping[str, str | None]) -> list[AlterConfigOp]:
    """Values to set; None takes one back."""
    return [
        AlterConfigOp(name, value, AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET)
        for name, value in configs.items()
    ]


def _row(entry: ConfigEntry, resource: ConfigResource, place: _Place) -> ConfigRow:
    # A default may go by another name and unit (log.retention.hours): then nobody shows it.
    defaults = [
        each.value
        for each in entry.synonyms
        if each.source is ConfigSource.DEFAULT_CONFIG and each.name.endswith(entry.name)
    ]
    if not defaults and entry.source is ConfigSource.DEFAULT_CONFIG:
        defaults = [entry.value]
    return ConfigRow(
        entry.name,
        None if entry.is_sensitive else entry.value,
        None if entry.is_sensitive or not defaults else defaults[0],
        entry.source.name.lower().replace("_config", "").replace("_", " "),
        entry.source is _OWN[resource.type],
        entry.is_read_only,
        entry.is_sensitive,
        entry.type.name.lower(),
        entry.documentation,
        place.group,
        place.order,
        display_name_of(entry.name),
        entry.type in _NEVER_EMPTY,
    )
