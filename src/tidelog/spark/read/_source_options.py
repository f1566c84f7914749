"""What a reading job has set, checked and in one immutable object that goes to the executors.

The rules are those of Spark's Kafka connector: exactly one way of naming partitions, timestamps before
offsets, nothing about an end for a stream, and no client option that Spark's own bookkeeping replaces. Made
by ``spark.data_source``, used by all readers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.client._ranges.range_fetcher import RangeSettings
from tidelog.client.options import CONSUMER
from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition
from tidelog.spark.read._data_loss import report_data_loss
from tidelog.spark.read._offsets import (
    EARLIEST,
    LATEST,
    EarliestLimit,
    GlobalTimestampLimit,
    LatestLimit,
    OffsetLimit,
    SpecificLimit,
    TimestampLimit,
    read_offsets,
    read_partitions,
)
from tidelog.spark.runtime._executor_login import GivenLogin, Login, login_of
from tidelog.spark.runtime._options import (
    SOURCE_OPTIONS,
    ClientRefusals,
    OptionValues,
    duration_ms,
    read_options,
    unset,
)
from tidelog.spark.runtime.silence import no_broker

logger = logging.getLogger(__name__)

_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitGroup")

_REFUSALS = ClientRefusals(
    {
        "auto.offset.reset": "where a query begins is said by startingOffsets",
        "key.deserializer": "keys are binary; use DataFrame operations to deserialize them",
        "value.deserializer": "values are binary; set valueFormat, or use DataFrame operations",
        "enable.auto.commit": "Spark's checkpoint keeps the offsets; commitGroup shows them to Kafka's tools",
        "interceptor.classes": "interceptors could change records before Spark sees them",
    }
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """One reading job's options."""

    client: Mapping[str, str]
    """The client's options, without ``kafka.`` and without its login."""
    login: Login = field(default_factory=GivenLogin)
    """Who it is; on executors, a delegation token."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: OffsetLimit = field(default_factory=LatestLimit)
    ending: OffsetLimit = field(default_factory=LatestLimit)
    begin_at_end_without_match: bool = False
    """Whether a starting timestamp that no record reaches means the end of the log, and not an error."""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    packed_headers: bool = False
    """Headers are bytes (:func:`tidelog.spark.read.packed_headers.unpacked` reads them) instead of a list."""
    offset_retries: int = 3
    offset_retry_interval_ms: int = 10
    poll_timeout_ms: int = 120_000
    broker_timeout_ms: int = 20_000
    commit_group: str | None = None
    reports_batches: bool = True
    value_format: str = "raw"
    value_schema: str | None = None

    @property
    def read_committed(self) -> bool:
        return self.client.get("isolation.level", "read_uncommitted") == "read_committed"

    def range_settings(self) -> RangeSettings:
        """How the tasks of the job read their ranges."""
        fail, client = self.fail_on_data_loss, self.client
        return RangeSettings(
            poll_timeout_ms=self.poll_timeout_ms,
            broker_timeout_ms=self.broker_timeout_ms,
            report_loss=lambda what: report_data_loss(what, fail=fail),
            no_broker=lambda timeout_ms, cause: no_broker(client, timeout_ms, cause),
            poll_timeout_option="kafkaConsumer.pollTimeoutMs",
            option_prefix="kafka.",
        )

    def client_for(self, role: str) -> dict[str, str]:
        """The client's options with a name that says what the connection is for."""
        return {**self.client, **self.login.options(), "client.id": f"{self.client['client.id']}-{role}"}


def source_options(raw: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Read and check a job's options; None for ``streaming`` leaves out what depends on it."""
    values = read_options(raw, SOURCE_OPTIONS, CONSUMER, _REFUSALS)
    strategy = _strategy(values)
    if streaming:
        unset(values, _ENDINGS, "has no meaning for a stream, which never ends: leave it out")
    starting = _limit(values, "starting", LatestLimit() if streaming else EarliestLimit())
    ending = _limit(values, "ending", LatestLimit())
    if streaming is False:
        _check_batch(values, starting, ending)
    _check_rates(values)
    _check_value_format(values)
    delay = values.str("maxTriggerDelay")
    client, login = login_of(
        _client(values),
        use_token=values.bool("delegationToken"),
        mechanism=values.optional_str("delegationTokenMechanism"),
        timeout_ms=values.int("brokerTimeoutMs"),
    )
    return SourceOptions(
        client=client,
        login=login,
        topics=_topics(values) if strategy == "subscribe" else (),
        pattern=_pattern(values) if strategy == "subscribePattern" else None,
        assigned=read_partitions("assign", values.str("assign")) if strategy == "assign" else (),
        starting=starting,
        ending=ending,
        begin_at_end_without_match=values.str("startingOffsetsByTimestampStrategy").lower() == "latest",
        max_offsets_per_trigger=values.optional_int("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=values.optional_int("minOffsetsPerTrigger"),
        max_trigger_delay_ms=duration_ms(delay),
        min_partitions=values.optional_int("minPartitions"),
        max_records_per_partition=values.optional_int("maxRecordsPerPartition"),
        fail_on_data_loss=values.bool("failOnDataLoss"),
        include_headers=values.bool("includeHeaders"),
        packed_headers=values.str("headersFormat") == "packed",
        offset_retries=values.int("fetchOffset.numRetries"),
        offset_retry_interval_ms=values.int("fetchOffset.retryIntervalMs"),
        poll_timeout_ms=values.int("kafkaConsumer.pollTimeoutMs"),
        broker_timeout_ms=values.int("brokerTimeoutMs"),
        commit_group=values.optional_str("commitGroup"),
        reports_batches=values.bool("reportBatches"),
        value_format=values.str("valueFormat"),
        value_schema=values.optional_str("valueSchema"),
    )


def _strategy(values: OptionValues) -> str:
    given = [name for name in _STRATEGIES if name in values.given]
    if not given:
        raise ConfigError(
            "nothing says what to read: set one of the options subscribe, subscribePattern and assign"
        )
    if len(given) > 1:
        raise ConfigError(f"options {' and '.join(given)} exclude one another: leave all but one out")
    return given[0]


def _topics(values: OptionValues) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in values.str("subscribe").split(",") if name.strip()))
    if not topics:
        raise ConfigError("option subscribe names no topic: give at least one, separated by commas")
    return topics


def _pattern(values: OptionValues) -> str:
    pattern = values.str("subscribePattern")
    if not pattern:
        raise ConfigError(
            "option subscribePattern is empty: give a regular expression for the names of topics"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"option subscribePattern is no regular expression that Python can read: {error}"
        ) from None
    return pattern


def _limit(values: OptionValues, end: str, default: OffsetLimit) -> OffsetLimit:
    """Where to begin or to end; of several, a timestamp for all goes before one each, and before offsets."""
    timestamp = values.optional_int(f"{end}Timestamp")
    if timestamp is not None:
        if timestamp < 0:
            raise ConfigError(
                f"option {end}Timestamp is {timestamp}, and no time is before 0 (ms since 1970)"
            )
        return GlobalTimestampLimit(timestamp)
    by_timestamp = values.optional_str(f"{end}OffsetsByTimestamp")
    if by_timestamp is not None:
        return TimestampLimit(read_offsets(f"{end}OffsetsByTimestamp", by_timestamp).offsets)
    text = values.optional_str(f"{end}Offsets")
    if text is None:
        return default
    if text.lower() == "earliest":
        return EarliestLimit()
    if text.lower() == "latest":
        return LatestLimit()
    given = read_offsets(f"{end}Offsets", text)
    for partition, offset in given.offsets.items():
        if offset < EARLIEST:
            raise ConfigError(f"option {end}Offsets has {offset} for {partition}: give an offset, -2 or -1")
    return SpecificLimit(given.offsets, given.topic_ids)


def _check_batch(values: OptionValues, starting: OffsetLimit, ending: OffsetLimit) -> None:
    if starting == LatestLimit() or (
        isinstance(starting, SpecificLimit) and LATEST in starting.offsets.values()
    ):
        raise ConfigError(
            "option startingOffsets cannot be latest (-1) for a batch, which would read nothing"
        )
    if ending == EarliestLimit() or (
        isinstance(ending, SpecificLimit) and EARLIEST in ending.offsets.values()
    ):
        raise ConfigError(
            "option endingOffsets cannot be earliest (-2) for a batch, which would read nothing"
        )
    for first, last, what in (
        (getattr(starting, "offsets", None), getattr(ending, "offsets", None), "Offsets"),
        (getattr(starting, "timestamps", None), getattr(ending, "timestamps", None), "OffsetsByTimestamp"),
    ):
        if first is not None and last is not None:
            _check_order(first, last, what)
    for name in sorted(set(_STREAM_ONLY) & values.given):
        logger.warning("option %s has no effect on a batch", name)


def _check_order(first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int], what: str) -> None:
    if odd := sorted(set(first) ^ set(last)):
        raise ConfigError(f"only one of starting{what} and ending{what} names {odd[0]}: name it in both")
    for partition, begin in first.items():
        if 0 <= last[partition] < begin:
            raise ConfigError(
                f"starting{what} has {begin} for {partition}, behind its ending{what} {last[partition]}"
            )


def _check_rates(values: OptionValues) -> None:
    least, most = values.optional_int("minOffsetsPerTrigger"), values.optional_int("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}: lower it")


def _check_value_format(values: OptionValues) -> None:
    wanted, schema = values.str("valueFormat"), values.optional_str("valueSchema")
    if wanted == "json" and not schema:
        raise ConfigError(
            "valueFormat=json needs the fields of the values: set valueSchema, as in 'id BIGINT'"
        )
    if wanted != "json" and schema is not None:
        raise ConfigError(
            f"valueSchema says nothing about values of valueFormat={wanted}: set valueFormat to json"
        )


def _client(values: OptionValues) -> dict[str, str]:
    """The client's options; no group is joined, so a group's name only names the connections."""
    client = dict(values.client)
    group = client.pop("group.id", None)
    if group is not None and "groupIdPrefix" in values.given:
        logger.warning("groupIdPrefix has no effect beside kafka.group.id")
    client.setdefault("client.id", group or values.str("groupIdPrefix"))
    return client
