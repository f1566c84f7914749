"""Options of single groups: set, described, listed, kept, and in force within the broker's bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.config.config_entries import ConfigSource
from tidelog.config.options.group_options import GROUP_OPTIONS
from tidelog.errors import ErrorCode
from tidelog.metadata.group_configs import GroupConfigs
from tidelog.wire.messages import alter_configs as legacy
from tidelog.wire.messages import describe_configs as describe
from tidelog.wire.messages import incremental_alter_configs as incremental
from tidelog.wire.messages.list_config_resources import ListConfigResourcesRequest

Run = Callable[..., None]
GROUP = 32
SET, DELETE = 0, 1
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


async def edit(
    broker: Any, group: str, *ops: tuple[str, int, str | None], validate_only: bool = False
) -> int:
    resource = incremental.AlterConfigsResource(
        resource_type=GROUP,
        resource_name=group,
        configs=[incremental.AlterableConfig(name=k, config_operation=op, value=v) for k, op, v in ops],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await broker.call("incremental_alter_configs", request, 1)).responses
    code: int = result.error_code
    return code


async def described(broker: Any, group: str, *keys: str) -> dict[str, tuple[str, int, list[tuple[str, int]]]]:
    resource = describe.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=list(keys) or None
    )
    request = describe.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = (await broker.call("describe_configs", request, 4)).results
    assert result.error_code == 0
    assert not any(each.read_only or each.is_sensitive for each in result.configs)
    return {
        each.name: (each.value, each.config_source, [(other.name, other.source) for other in each.synonyms])
        for each in result.configs
    }


def test_an_option_of_a_group_is_in_force_at_once_and_after_a_restart(run: Run) -> None:
    async def before(broker: Any) -> None:
        configs = GroupConfigs(broker.image, broker.config)
        assert configs.int("g", SESSION) == 45000
        assert await edit(broker, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "7000")) == 0
        assert (configs.int("g", SESSION), configs.int("g", HEARTBEAT)) == (50000, 7000)
        assert (configs.int("other", SESSION), configs.int("g", ASSIGNMENT)) == (45000, 1000)

    async def after(broker: Any) -> None:
        configs = GroupConfigs(broker.image, broker.config)
        assert configs.int("g", SESSION) == 50000
        assert await edit(broker, "g", (SESSION, DELETE, None)) == 0
        assert (configs.int("g", SESSION), configs.int("g", HEARTBEAT)) == (45000, 7000)

    run(before)
    run(after)


def test_bounds_that_have_moved_since_hold_for_options_that_were_set_before(run: Run) -> None:
    async def before(broker: Any) -> None:
        assert await edit(broker, "g", (SESSION, SET, "60000"), (ASSIGNMENT, SET, "15000")) == 0

    async def after(broker: Any) -> None:
        configs = GroupConfigs(broker.image, broker.config)
        assert (configs.int("g", SESSION), configs.int("g", ASSIGNMENT)) == (55000, 2000)

    run(before)
    lower = {
        "group.consumer.max.session.timeout.ms": "55000",
        "group.consumer.max.assignment.interval.ms": "2000",
    }
    run(after, lower)


def test_what_somebody_else_wrote_and_nobody_can_read_is_passed_over(run: Run) -> None:
    async def body(broker: Any) -> None:
        raw = b'{"version":1,"config":{"consumer.session.timeout.ms":"soon","share.session.timeout.ms":"9"}}'
        await broker.store.create("/config/groups/g", raw)
        await broker.controller.change_group_config("h", lambda now: {}, validate_only=False)
        assert broker.image.group_configs["g"][SESSION] == "soon"
        assert GroupConfigs(broker.image, broker.config).int("g", SESSION) == 45000

    run(body)


@pytest.mark.parametrize("group", ["a/b", "..", ".", "<default>", "100%", "ü ~*+", "a.b-c_d"])
def test_a_group_may_have_any_name(run: Run, group: str) -> None:
    async def before(broker: Any) -> None:
        assert await edit(broker, group, (SESSION, SET, "50000")) == 0
        assert broker.image.group_configs == {group: {SESSION: "50000"}}

    async def after(broker: Any) -> None:
        assert broker.image.group_configs == {group: {SESSION: "50000"}}

    run(before)
    run(after)


def test_a_group_is_described_with_where_its_options_come_from(run: Run) -> None:
    async def body(broker: Any) -> None:
        assert (
            await edit(broker, "g", (SESSION, SET, "50000"), ("share.isolation.level", SET, "read_committed"))
            == 0
        )
        found = await described(broker, "g", SESSION, HEARTBEAT, ASSIGNMENT, "share.isolation.level")
        default = ConfigSource.DEFAULT_CONFIG
        assert found == {
            SESSION: (
                "50000",
                ConfigSource.GROUP_CONFIG,
                [(SESSION, ConfigSource.GROUP_CONFIG), (f"group.{SESSION}", default)],
            ),
            HEARTBEAT: (
                "6000",
                ConfigSource.STATIC_BROKER_CONFIG,
                [(f"group.{HEARTBEAT}", ConfigSource.STATIC_BROKER_CONFIG), (f"group.{HEARTBEAT}", default)],
            ),
            ASSIGNMENT: ("1000", default, [(f"group.{ASSIGNMENT}", default)]),
            "share.isolation.level": (
                "read_committed",
                ConfigSource.GROUP_CONFIG,
                [("share.isolation.level", ConfigSource.GROUP_CONFIG), ("share.isolation.level", default)],
            ),
        }
        assert (await described(broker, "not there")).keys() == set(GROUP_OPTIONS)

    run(body, {"group.consumer.heartbeat.interval.ms": "6000"})


def test_groups_with_options_are_listed(run: Run) -> None:
    async def body(broker: Any) -> None:
        for group in ("a", "b"):
            assert await edit(broker, group, (SESSION, SET, "50000")) == 0
        assert await edit(broker, "a", (SESSION, DELETE, None)) == 0
        for types in ([GROUP], []):
            request = ListConfigResourcesRequest(resource_types=types)
            response = await broker.call("list_config_resources", request, 1)
            listed = [each.resource_name for each in response.config_resources if each.resource_type == GROUP]
            assert listed == ["b"]

    run(body)


def test_a_change_that_is_only_tried_changes_nothing(run: Run) -> None:
    async def body(broker: Any) -> None:
        assert await edit(broker, "g", (SESSION, SET, "50000"), validate_only=True) == 0
        assert broker.image.group_configs == {}

    run(body)


def test_all_options_of_a_group_are_replaced_by_the_old_request(run: Run) -> None:
    async def body(broker: Any) -> None:
        assert await edit(broker, "g", (SESSION, SET, "50000")) == 0
        resource = legacy.AlterConfigsResource(
            resource_type=GROUP,
            resource_name="g",
            configs=[legacy.AlterableConfig(name=HEARTBEAT, value="8000")],
        )
        request = legacy.AlterConfigsRequest(resources=[resource])
        (result,) = (await broker.call("alter_configs", request, 2)).responses
        assert result.error_code == 0
        assert broker.image.group_configs == {"g": {HEARTBEAT: "8000"}}

    run(body)


def test_a_session_must_outlast_a_heartbeat(run: Run) -> None:
    async def body(broker: Any) -> None:
        assert (
            await edit(broker, "g", (SESSION, SET, "6000"), (HEARTBEAT, SET, "6000"))
            == ErrorCode.INVALID_CONFIG
        )
        assert await edit(broker, "g", (SESSION, SET, "6001"), (HEARTBEAT, SET, "6000")) == 0

    run(body, {"group.consumer.min.session.timeout.ms": "1000"})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("share.auto.offset.reset", "by_duration:P1DT2H", "by_duration:-P1D"),
        ("share.auto.offset.reset", "earliest", "middle"),
        ("share.isolation.level", "read_committed", "READ"),
        ("share.delivery.count.limit", "2", "1"),
        ("share.renew.acknowledge.enable", "false", "no"),
        ("streams.num.standby.replicas", "1", "-1"),
    ],
)
def test_options_of_other_groups_are_checked_and_kept(run: Run, name: str, good: str, bad: str) -> None:
    async def body(broker: Any) -> None:
        assert await edit(broker, "g", (name, SET, bad)) == ErrorCode.INVALID_CONFIG
        assert await edit(broker, "g", (name, SET, good)) == 0
        assert broker.image.group_configs == {"g": {name: good}}

    run(body)
