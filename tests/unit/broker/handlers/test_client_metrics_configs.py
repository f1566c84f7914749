"""Subscriptions to clients' metrics as configs: set, described, listed, kept over a restart, and gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.config.config_entries import ConfigSource
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages import alter_configs as legacy
from tidelog.wire.messages import describe_configs as describe
from tidelog.wire.messages import incremental_alter_configs as incremental
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.list_config_resources import ListConfigResourcesRequest

Run = Callable[..., None]
CLIENT_METRICS = 16
TELEMETRY: set[int] = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
SET, DELETE, APPEND, SUBTRACT = range(4)
NAME = "a name/with % ü"


async def edit(
    broker: Any, name: str, *ops: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    resource = incremental.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=[incremental.AlterableConfig(name=k, config_operation=op, value=v) for k, op, v in ops],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await broker.call("incremental_alter_configs", request, 1)).responses
    return result.error_code, result.error_message


async def described(broker: Any, name: str) -> dict[str, tuple[str, int]]:
    resource = describe.DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name)
    request = describe.DescribeConfigsRequest(resources=[resource])
    (result,) = (await broker.call("describe_configs", request, 4)).results
    assert result.error_code == 0
    return {each.name: (each.value, each.config_source) for each in result.configs}


async def listed(broker: Any) -> list[str]:
    old = await broker.call("list_config_resources", ListConfigResourcesRequest(), 0)
    new = await broker.call("list_config_resources", ListConfigResourcesRequest(resource_types=[16]), 1)
    names = [each.resource_name for each in old.config_resources]
    assert [(16, name) for name in names] == [
        (each.resource_type, each.resource_name) for each in new.config_resources
    ]
    return names


def test_a_subscription_is_there_at_once_and_after_a_restart_until_its_last_entry_goes(run: Run) -> None:
    own, default = ConfigSource.CLIENT_METRICS_CONFIG, ConfigSource.DEFAULT_CONFIG

    async def before(broker: Any) -> None:
        assert await listed(broker) == []
        assert await edit(broker, NAME, ("metrics", SET, "a.,b."), ("interval.ms", SET, "1000")) == (0, None)
        assert await edit(broker, NAME, ("metrics", APPEND, "c."), ("match", APPEND, "client_id=x")) == (
            0,
            None,
        )
        assert await edit(broker, NAME, ("metrics", SUBTRACT, "a.")) == (0, None)
        assert broker.image.client_metrics[NAME]["metrics"] == "b.,c."

    async def after(broker: Any) -> None:
        assert await listed(broker) == [NAME]
        assert await described(broker, NAME) == {
            "metrics": ("b.,c.", own),
            "interval.ms": ("1000", own),
            "match": ("client_id=x", own),
        }
        assert await edit(broker, NAME, ("metrics", DELETE, None), ("match", DELETE, None)) == (0, None)
        assert (await described(broker, NAME))["match"] == ("", default)
        assert await listed(broker) == [NAME]
        assert await edit(broker, NAME, ("interval.ms", DELETE, None)) == (0, None)
        assert await listed(broker) == []

    async def at_last(broker: Any) -> None:
        assert await listed(broker) == []

    run(before)
    run(after)
    run(at_last)


def test_telemetry_is_offered_while_there_is_a_subscription(run: Run) -> None:
    async def offered(broker: Any) -> bool:
        response = await broker.call("api_versions", ApiVersionsRequest(), 2)
        found = {each.api_key for each in response.api_keys} & TELEMETRY
        assert found in (set(), TELEMETRY)
        return bool(found)

    async def body(broker: Any) -> None:
        assert not await offered(broker)
        await edit(broker, NAME, ("interval.ms", SET, "1000"))
        assert await offered(broker)
        await edit(broker, NAME, ("interval.ms", DELETE, None))
        assert not await offered(broker)

    run(body)


def test_a_refused_or_only_checked_change_changes_nothing(run: Run) -> None:
    async def body(broker: Any) -> None:
        code, _ = await edit(broker, "s", ("metrics", SET, "*"), ("interval.ms", SET, "1"))
        assert code == ErrorCode.INVALID_REQUEST
        assert await edit(broker, "s", ("metrics", SET, "*"), validate_only=True) == (0, None)
        assert await edit(broker, "", ("metrics", SET, "*")) == (
            ErrorCode.INVALID_REQUEST,
            "Subscription name can't be empty",
        )
        assert await listed(broker) == []

    run(body)


def test_the_older_request_replaces_a_subscription(run: Run) -> None:
    async def replace(broker: Any, *entries: tuple[str, str]) -> int:
        configs = [legacy.AlterableConfig(name=name, value=value) for name, value in entries]
        resource = legacy.AlterConfigsResource(
            resource_type=CLIENT_METRICS, resource_name="s", configs=configs
        )
        request = legacy.AlterConfigsRequest(resources=[resource])
        (result,) = (await broker.call("alter_configs", request, 2)).responses
        code: int = result.error_code
        return code

    async def body(broker: Any) -> None:
        assert await replace(broker, ("metrics", "*"), ("interval.ms", "500")) == 0
        assert await replace(broker, ("metrics", "a.")) == 0
        assert broker.image.client_metrics == {"s": {"metrics": "a."}}
        assert await replace(broker) == 0
        assert broker.image.client_metrics == {}

    run(body)
