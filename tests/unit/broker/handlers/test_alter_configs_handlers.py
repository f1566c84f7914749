"""AlterConfigs and IncrementalAlterConfigs: what changes, at once and for good."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode
from tidelog.wire.messages import alter_configs as legacy
from tidelog.wire.messages import incremental_alter_configs as incremental

Run = Callable[..., None]
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Outcome = tuple[int, str | None]


async def _edit(
    broker: Any,
    kind: int,
    name: str,
    *ops: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> Outcome:
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[incremental.AlterableConfig(name=k, config_operation=op, value=v) for k, op, v in ops],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = (await broker.call("incremental_alter_configs", request, version)).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


async def _replace(
    broker: Any, kind: int, name: str, *entries: tuple[str, str | None], version: int = 2
) -> Outcome:
    resource = legacy.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[legacy.AlterableConfig(name=key, value=value) for key, value in entries],
    )
    request = legacy.AlterConfigsRequest(resources=[resource])
    (result,) = (await broker.call("alter_configs", request, version)).responses
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", [0, 1])
def test_a_topics_log_goes_by_its_new_config_at_once_and_after_a_restart(run: Run, version: int) -> None:
    async def before(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 2)])
        assert await _edit(broker, TOPIC, "t", ("retention.ms", SET, "1234"), version=version) == (0, None)
        for index in (0, 1):
            assert broker.partitions.get("t", index).log.config.retention_ms == 1234

    async def after(broker: Any) -> None:
        assert broker.partitions.get("t", 0).log.config.retention_ms == 1234
        assert await _edit(broker, TOPIC, "t", ("retention.ms", DELETE, None)) == (0, None)
        assert broker.partitions.get("t", 0).log.config.retention_ms == 604800000

    run(before)
    run(after)


def test_broker_options_reach_logs_whose_topics_do_not_override_them(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics(
            [NewTopic("plain"), NewTopic("own", configs={"max.message.bytes": "99"})]
        )
        assert await _edit(broker, BROKER, "", ("message.max.bytes", SET, "5000")) == (0, None)
        assert broker.partitions.get("plain", 0).log.config.max_message_bytes == 5000
        assert broker.partitions.get("own", 0).log.config.max_message_bytes == 99
        assert await _edit(broker, BROKER, "1", ("message.max.bytes", SET, "6000")) == (0, None)
        assert broker.partitions.get("plain", 0).log.config.max_message_bytes == 6000

    run(body)


def test_lists_are_appended_to_and_subtracted_from(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        assert await _edit(broker, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
        assert broker.image.topic_config("t") == {"cleanup.policy": "delete,compact"}
        assert broker.partitions.get("t", 0).log.config.compact
        assert await _edit(broker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
        assert not broker.partitions.get("t", 0).log.config.delete

    run(body)


def test_all_edits_of_a_resource_or_none(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        outcome = await _edit(broker, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.bytes", SET, "-1"))
        assert outcome == (
            ErrorCode.INVALID_CONFIG,
            "Invalid value -1 for configuration segment.bytes: Value must be at least 1048576",
        )
        assert broker.image.topic_config("t") == {}

    run(body)


def test_validate_only_changes_nothing(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        for kind, name, key in ((TOPIC, "t", "retention.ms"), (BROKER, "1", "message.max.bytes")):
            assert await _edit(broker, kind, name, (key, SET, "5"), validate_only=True) == (0, None)
        assert broker.image.topic_config("t") == {}
        assert broker.config.int("message.max.bytes") == 1048588

    run(body)


@pytest.mark.parametrize(
    ("kind", "name", "op", "code", "message"),
    [
        (TOPIC, "t", ("nope", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            TOPIC,
            "t",
            ("retention.ms", SET, None),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            TOPIC,
            "t",
            ("retention.ms", APPEND, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        (
            TOPIC,
            "no",
            ("retention.ms", SET, "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'no' does not exist.",
        ),
        (
            TOPIC,
            "",
            ("retention.ms", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            BROKER,
            "7",
            ("message.max.bytes", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 7",
        ),
        (
            BROKER,
            "x",
            ("message.max.bytes", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            BROKER,
            "1",
            ("message.max.bytes", SET, "-5"),
            ErrorCode.INVALID_REQUEST,
            "Invalid value -5 for configuration message.max.bytes: Value must be at least 0",
        ),
        (GROUP, "", ("a", SET, "1"), ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        (GROUP, "g", ("a", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown group config name: a"),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", APPEND, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key consumer.session.timeout.ms because its type is not LIST.",
        ),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, "x"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT",
        ),
        (
            GROUP,
            "g",
            ("consumer.session.timeout.ms", SET, "44999"),
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
        (
            GROUP,
            "g",
            ("consumer.heartbeat.interval.ms", SET, "15001"),
            ErrorCode.INVALID_CONFIG,
            "consumer.heartbeat.interval.ms must be less than or equal to "
            "group.consumer.max.heartbeat.interval.ms",
        ),
        (
            CLIENT_METRICS,
            "m",
            ("a", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics configuration: a",
        ),
        (99, "x", ("a", SET, "1"), ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_bad_edits_are_refused_with_kafkas_codes_and_words(
    run: Run, kind: int, name: str, op: tuple[str, int, str | None], code: ErrorCode, message: str
) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        assert await _edit(broker, kind, name, op) == (code, message)

    run(body)


def test_read_only_broker_options_are_refused(run: Run) -> None:
    async def body(broker: Any) -> None:
        code, message = await _edit(broker, BROKER, "1", ("log.dirs", SET, "/elsewhere"))
        assert code == ErrorCode.INVALID_REQUEST
        assert message is not None
        assert message.startswith("Cannot update these configs dynamically: ")
        assert "log.dirs" in message

    run(body)


def test_a_resource_or_a_key_that_comes_twice_is_refused(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t"), NewTopic("u")])
        op = incremental.AlterableConfig(name="retention.ms", value="5")
        resources = [
            incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[op])
            for name in ("t", "u", "t")
        ]
        request = incremental.IncrementalAlterConfigsRequest(resources=resources)
        results = (await broker.call("incremental_alter_configs", request, 1)).responses
        twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        assert [(each.error_code, each.error_message) for each in results] == [twice, (0, None), twice]
        assert broker.image.topic_config("t") == {}
        outcome = await _edit(broker, TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
        assert outcome == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")

    run(body)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_entries(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", configs={"segment.ms": "9", "flush.ms": "8"})])
        assert await _replace(broker, TOPIC, "t", ("retention.ms", "7"), version=version) == (0, None)
        assert broker.image.topic_config("t") == {"retention.ms": "7"}
        assert await _replace(broker, TOPIC, "t", version=version) == (0, None)
        assert broker.image.topic_config("t") == {}

    run(body)


@pytest.mark.parametrize(
    ("kind", "name", "entries", "code", "message"),
    [
        (
            TOPIC,
            "t",
            [("retention.ms", None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            TOPIC,
            "t",
            [("a", "1"), ("a", "2")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (LOGGER, "1", [("root", "INFO")], ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
        (TOPIC, "t", [("nope", "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
    ],
)
def test_bad_replacements_are_refused(
    run: Run, kind: int, name: str, entries: list[tuple[str, str | None]], code: ErrorCode, message: str
) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        assert await _replace(broker, kind, name, *entries) == (code, message)

    run(body)


def test_levels_of_loggers_are_set_and_unset(run: Run) -> None:
    async def body(broker: Any) -> None:
        logger = logging.getLogger("tests.altered")
        assert await _edit(broker, LOGGER, "1", ("tests.altered", SET, "TRACE"), validate_only=True) == (
            0,
            None,
        )
        assert logger.level == logging.NOTSET
        assert await _edit(broker, LOGGER, "1", ("tests.altered", SET, "TRACE")) == (0, None)
        assert logger.level == 5
        assert await _edit(broker, LOGGER, "1", ("tests.altered", SET, "FATAL")) == (0, None)
        assert logger.level == logging.CRITICAL
        assert await _edit(broker, LOGGER, "1", ("tests.altered", DELETE, None)) == (0, None)
        assert logger.level == logging.NOTSET

    run(body)


@pytest.mark.parametrize(
    ("name", "op", "code", "message"),
    [
        ("1", ("no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        (
            "1",
            ("root", SET, "info"),
            ErrorCode.INVALID_CONFIG,
            "Cannot set the log level of root to info as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (
            "1",
            ("root", DELETE, None),
            ErrorCode.INVALID_REQUEST,
            "Removing the log level of the root logger is not allowed",
        ),
        (
            "1",
            ("root", APPEND, "INFO"),
            ErrorCode.INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            "7",
            ("root", SET, "INFO"),
            ErrorCode.INVALID_REQUEST,
            "Unexpected node id. Expected 1, but received 7",
        ),
        ("", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: "),
    ],
)
def test_bad_logger_edits_are_refused(
    run: Run, name: str, op: tuple[str, int, str | None], code: ErrorCode, message: str
) -> None:
    async def body(broker: Any) -> None:
        before = logging.getLogger().level
        assert await _edit(broker, LOGGER, name, op) == (code, message)
        assert logging.getLogger().level == before

    run(body)


def test_the_answer_says_which_options_are_kept_without_effect(run: Run) -> None:
    async def scenario(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 1)])
        kept = "kept without effect on this broker: "
        assert await _edit(broker, BROKER, "", ("num.io.threads", SET, "4")) == (0, f"{kept}num.io.threads")
        ops = ("log.retention.ms", SET, "1000"), ("leader.replication.throttled.rate", SET, "1000")
        assert await _edit(broker, BROKER, "", *ops) == (0, f"{kept}leader.replication.throttled.rate")
        replicas = "follower.replication.throttled.replicas", "*"
        assert await _replace(broker, TOPIC, "t", replicas) == (0, f"{kept}{replicas[0]}")
        assert await _edit(broker, BROKER, "", ("num.io.threads", DELETE, None)) == (0, None)

    run(scenario)


STORE_PASSWORD = "listener.name.plaintext.ssl.keystore.password"
SECRET = {"password.encoder.secret": "first", "password.encoder.iterations": "1024"}
ROTATED = {"password.encoder.secret": "second", "password.encoder.old.secret": "first"}
WRONG = {"password.encoder.secret": "third"}


def _password(broker: Any) -> str | None:
    found: str | None = broker.config.for_listener("PLAINTEXT").optional_str("ssl.keystore.password")
    return found


def _edits(*ops: tuple[str, int, str | None], password: str | None) -> Callable[[Any], Any]:
    async def body(broker: Any) -> None:
        assert await _edit(broker, BROKER, "1", *ops) == (0, None)
        assert _password(broker) == password

    return body


def test_a_password_outlives_changes_of_other_options(run: Run) -> None:
    async def body(broker: Any) -> None:
        assert await _edit(broker, BROKER, "1", (STORE_PASSWORD, SET, "hunter2")) == (0, None)
        kept = broker.image.broker_config(1)[STORE_PASSWORD]
        assert await _edit(broker, BROKER, "1", ("message.max.bytes", SET, "2000")) == (0, None)
        assert broker.config.int("message.max.bytes") == 2000
        assert _password(broker) == "hunter2"
        assert broker.image.broker_config(1)[STORE_PASSWORD] == kept

    run(body, SECRET)
    run(_edits(("message.max.bytes", SET, "3000"), password="hunter2"), SECRET)
    run(_edits(("message.max.bytes", SET, "4000"), password="hunter2"), ROTATED)


def test_a_password_that_cannot_be_read_stays_until_it_is_changed(run: Run) -> None:
    run(_edits((STORE_PASSWORD, SET, "hunter2"), password="hunter2"), SECRET)
    run(_edits(("message.max.bytes", SET, "2000"), password=None), WRONG)
    run(_edits(("message.max.bytes", SET, "3000"), password=None))
    run(_edits(("message.max.bytes", SET, "4000"), password="hunter2"), SECRET)
    run(_edits((STORE_PASSWORD, SET, "hunter3"), password="hunter3"), WRONG)
    run(_edits(("message.max.bytes", SET, "5000"), password=None), SECRET)
    run(_edits((STORE_PASSWORD, DELETE, None), password=None), SECRET)
    run(_edits(("message.max.bytes", SET, "6000"), password=None), WRONG)
