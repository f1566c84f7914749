"""Configs of topics and brokers as pages show and change them: value, default, its origin, its doc."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from tidelog.console.api.endpoint import Call
from tidelog.console.refusal import Refusal
from tidelog.console.watching.watched_cluster import WatchedCluster

_OWN = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
}
"""Where values come from that were set for the thing itself."""


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


class ConfigChanges(msgspec.Struct, forbid_unknown_fields=True):
    """Configs to set; null takes a value back to what it would be without."""

    configs: dict[str, str | None]
    dry_run: bool = False


async def config_rows(cluster: WatchedCluster, resource: ConfigResource) -> list[ConfigRow]:
    """The configs of one thing, by name."""
    (found,) = await cluster.admin.describe_configs([resource], include_documentation=True)
    found.raise_for_error()
    return [_row(each, resource) for each in sorted(found.entries, key=lambda each: each.name)]


async def change_configs(call: Call, resource: ConfigResource, asked: ConfigChanges) -> list[ConfigRow]:
    """Set or take back configs, and give them as they are then."""
    if not asked.configs:
        raise Refusal("name a config to change")
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


def _row(entry: ConfigEntry, resource: ConfigResource) -> ConfigRow:
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
    )
