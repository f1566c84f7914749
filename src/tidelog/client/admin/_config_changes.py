"""Describing and altering configs: which broker to ask, and what to do on brokers without KIP-339.

Topic configs can be asked of any broker; a broker's own must be asked of that broker. Brokers are asked at
the same time, and one that does not answer takes nothing from the others: its resources have an error then.
Where nobody has answered, that is raised. Called by ``AsyncAdmin``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Deadline
from tidelog.client._network.unanswered import as_outcome
from tidelog.client.errors import NO_ANSWER, ClientError, error_from
from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResult,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.options import render_value
from tidelog.wire.messages import alter_configs as whole
from tidelog.wire.messages import incremental_alter_configs as incremental
from tidelog.wire.messages import list_config_resources as listing
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

Changes = Mapping[ConfigResource, Sequence[AlterConfigOp]]
ConfigValues = Mapping[str, str | int | float | bool]
"""Values to set, by the names of the configs."""
GivenChanges = Mapping[ConfigResource, Sequence[AlterConfigOp] | ConfigValues]

_CHANGES_ARE = (
    "alter_configs takes the changes of each ConfigResource, as "
    "{ConfigResource(ResourceType.TOPIC, 'orders'): {'retention.ms': '60000'}}, or lists of AlterConfigOp"
)

_TYPES_SINCE = 1
_OWN_SOURCE = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    ResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
}


async def describe_configs(
    cluster: Cluster,
    resources: Collection[ConfigResource],
    *,
    names: Collection[str] | None = None,
    include_documentation: bool = False,
) -> list[ConfigResult]:
    """See :meth:`AsyncAdmin.describe_configs`."""
    deadline = cluster.deadline()

    async def describe(node_id: int | None, group: list[ConfigResource]) -> list[ConfigResult]:
        def build(version: int) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if names is None else list(names),
                    )
                    for resource in group
                ],
                include_synonyms=True,
                include_documentation=include_documentation and version >= 3,
            )

        if node_id is None:
            response = await cluster.request_any(build, DescribeConfigsResponse, deadline)
        else:
            response = await cluster.request_node(node_id, build, DescribeConfigsResponse, deadline)
        return list(map(_config_result, response.results))

    return await _ask_nodes(resources, describe)


def checked_changes(given: GivenChanges) -> Changes:
    """The changes as lists of ``AlterConfigOp``; raises ``ClientError`` where they are something else."""
    if not isinstance(given, Mapping):
        raise ClientError(f"{_CHANGES_ARE}, not {given!r}")
    return {_checked_resource(resource): _checked_ops(resource, wanted) for resource, wanted in given.items()}


def _checked_resource(resource: object) -> ConfigResource:
    if isinstance(resource, ConfigResource):
        return resource
    raise ClientError(f"{_CHANGES_ARE}, not those of {resource!r}")


def _checked_ops(resource: ConfigResource, wanted: object) -> list[AlterConfigOp]:
    if isinstance(wanted, Mapping):
        return [AlterConfigOp(name, config_text(name, value)) for name, value in wanted.items()]
    if isinstance(wanted, str) or not isinstance(wanted, Sequence):
        raise ClientError(f"{_CHANGES_ARE}, not {wanted!r} for {resource}")
    ops = []
    for op in wanted:
        if not isinstance(op, AlterConfigOp):
            raise ClientError(f"{_CHANGES_ARE}, not {op!r} for {resource}")
        value = None if op.op is AlterConfigOpType.DELETE else config_text(op.name, op.value)
        ops.append(AlterConfigOp(op.name, value, op.op))
    return ops


def config_text(name: object, value: object) -> str:
    """A config's value as brokers take it: text, or the text of a number or a bool."""
    if not isinstance(name, str):
        raise ClientError(f"the name of a config is a str, not {name!r}")
    if value is None:
        raise ClientError(
            f"config {name} cannot be set to None: to reset it to its default, give "
            f"AlterConfigOp({name!r}, None, AlterConfigOpType.DELETE)"
        )
    text = render_value(value) if isinstance(value, str | int | float) else None
    if text is None:
        raise ClientError(f"the value of config {name} is a str, a number or a bool, not {value!r}")
    return text


async def alter_configs(
    cluster: Cluster, changes: Changes, *, validate_only: bool = False
) -> list[ConfigResult]:
    """See :meth:`AsyncAdmin.alter_configs`."""
    deadline = cluster.deadline()

    async def alter(node_id: int | None, group: list[ConfigResource]) -> list[ConfigResult]:
        part = {resource: changes[resource] for resource in group}
        try:
            return await _alter_incrementally(cluster, node_id, part, validate_only, deadline)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
        return await _alter_as_a_whole(cluster, node_id, part, validate_only, deadline)

    return await _ask_nodes(changes, alter)


async def _ask_nodes(
    resources: Collection[ConfigResource],
    ask: Callable[[int | None, list[ConfigResource]], Awaitable[list[ConfigResult]]],
) -> list[ConfigResult]:
    """What the brokers answer that have to be asked for ``resources``."""
    groups = _by_node(resources)

    async def asked(node_id: int | None) -> list[ConfigResult] | KafkaError | ClientError:
        try:
            return await ask(node_id, groups[node_id])
        except (KafkaError, *NO_ANSWER) as error:
            return error

    answers = await asyncio.gather(*map(asked, groups))
    failures = [each for each in answers if not isinstance(each, list)]
    if failures and len(failures) == len(answers):
        raise failures[0]
    results: list[ConfigResult] = []
    for group, answer in zip(groups.values(), answers, strict=True):
        if isinstance(answer, list):
            results += answer
        else:
            results += [ConfigResult(each, error=as_outcome(answer)) for each in group]
    return results


async def list_config_resources(cluster: Cluster, types: Collection[ResourceType]) -> list[ConfigResource]:
    """See :meth:`AsyncAdmin.list_config_resources`."""

    def build(version: int) -> listing.ListConfigResourcesRequest:
        if version >= _TYPES_SINCE:
            return listing.ListConfigResourcesRequest(resource_types=list(types))
        if set(types) != {ResourceType.CLIENT_METRICS}:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "this broker is older than Kafka 4.1 and lists the configs of client metrics only",
            )
        return listing.ListConfigResourcesRequest()

    response = await cluster.request_any(build, listing.ListConfigResourcesResponse)
    error = error_from(response.error_code, None, "listing what has configs")
    if error is not None:
        raise error
    return [_resource(each.resource_type, each.resource_name) for each in response.config_resources]


async def _alter_incrementally(
    cluster: Cluster, node_id: int | None, changes: Changes, validate_only: bool, deadline: Deadline
) -> list[ConfigResult]:
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    incremental.AlterableConfig(name=op.name, config_operation=op.op, value=op.value)
                    for op in ops
                ],
            )
            for resource, ops in changes.items()
        ],
        validate_only=validate_only,
    )
    response_type = incremental.IncrementalAlterConfigsResponse
    if node_id is None:
        response = await cluster.request_controller(
            request, response_type, lambda r: (each.error_code for each in r.responses), deadline
        )
    else:
        response = await cluster.request_node(node_id, request, response_type, deadline)
    return [_alter_result(each) for each in response.responses]


async def _alter_as_a_whole(
    cluster: Cluster, node_id: int | None, changes: Changes, validate_only: bool, deadline: Deadline
) -> list[ConfigResult]:
    """Kafka before 2.3 replaces all configs of a resource at once: read them, change, write them back."""
    resources: list[whole.AlterConfigsResource] = []
    for described in await describe_configs(cluster, list(changes)):
        described.raise_for_error()
        values = _own_values(described)
        for op in changes[described.resource]:
            _apply(op, values, described)
        resources.append(
            whole.AlterConfigsResource(
                resource_type=described.resource.type,
                resource_name=described.resource.name,
                configs=[whole.AlterableConfig(name=name, value=value) for name, value in values.items()],
            )
        )
    request = whole.AlterConfigsRequest(resources=resources, validate_only=validate_only)
    response_type = whole.AlterConfigsResponse
    if node_id is None:
        response = await cluster.request_any(request, response_type, deadline)
    else:
        response = await cluster.request_node(node_id, request, response_type, deadline)
    return [_alter_result(each) for each in response.responses]


def _own_values(described: ConfigResult) -> dict[str, str | None]:
    own = _OWN_SOURCE.get(described.resource.type)
    entries = [entry for entry in described.entries if entry.source is own]
    for entry in entries:
        if entry.is_sensitive:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this broker is older than Kafka 2.3 and changing one config of {described.resource} would "
                f"erase the secret {entry.name}: upgrade it, or use its own kafka-configs.sh",
            )
    return {entry.name: entry.value for entry in entries}


def _apply(op: AlterConfigOp, values: dict[str, str | None], described: ConfigResult) -> None:
    if op.op is AlterConfigOpType.SET:
        values[op.name] = op.value
        return
    if op.op is AlterConfigOpType.DELETE:
        values.pop(op.name, None)
        return
    effective = {entry.name: entry.value for entry in described.entries}
    current = [item for item in (values.get(op.name) or effective.get(op.name) or "").split(",") if item]
    items = [item for item in (op.value or "").split(",") if item]
    if op.op is AlterConfigOpType.APPEND:
        current += [item for item in items if item not in current]
    else:
        current = [item for item in current if item not in items]
    values[op.name] = ",".join(current)


def _by_node(resources: Collection[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Resources by the broker that must be asked; None where any will do."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        groups.setdefault(_broker_id(resource.name) if own else None, []).append(resource)
    return groups


def _broker_id(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a broker is named by its number, not by {name!r}"
        ) from None


def _resource(resource_type: int, name: str) -> ConfigResource:
    known = resource_type in ResourceType.__members__.values()
    return ConfigResource(ResourceType(resource_type) if known else ResourceType.UNKNOWN, name)


def _alter_result(
    result: incremental.AlterConfigsResourceResponse | whole.AlterConfigsResourceResponse,
) -> ConfigResult:
    resource = _resource(result.resource_type, result.resource_name)
    error = error_from(result.error_code, result.error_message, str(resource))
    return ConfigResult(resource, error=error, remark=None if error else result.error_message or None)


def _config_result(result: DescribeConfigsResult) -> ConfigResult:
    resource = _resource(result.resource_type, result.resource_name)
    return ConfigResult(
        resource,
        tuple(_config_entry(entry) for entry in sorted(result.configs, key=lambda entry: entry.name)),
        error_from(result.error_code, result.error_message, str(resource)),
    )


def _config_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        _source(entry.config_source),
        entry.read_only,
        entry.is_sensitive,
        tuple(ConfigSynonym(each.name, each.value, _source(each.source)) for each in entry.synonyms),
        ConfigType(entry.config_type) if entry.config_type in range(10) else ConfigType.UNKNOWN,
        entry.documentation or None,
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in range(9) else ConfigSource.UNKNOWN
