"""Asks the cluster which partitions there are and which offsets they have: the driver's half of reading.

Every question is tried ``fetchOffset.numRetries`` times more where the answer is an error that may pass;
leaders that are away are waited for, some minutes, as long as any broker answers (``runtime.silence``). One
admin client is opened when the first question comes, and serves until :meth:`OffsetReader.close`. Used by
``spark.read._batch_reader`` and ``spark.read._stream_reader``.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.client._network.retry import Deadline
from tidelog.client.errors import ClientError, is_retriable
from tidelog.client.resources import IsolationLevel, OffsetSpec, TopicDescription
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, TopicPartition, Uuid, uuid_to_text
from tidelog.spark.read._offsets import (
    EARLIEST,
    LATEST,
    EarliestLimit,
    GlobalTimestampLimit,
    LatestLimit,
    OffsetLimit,
    PartitionOffsets,
    SourceOffset,
    SpecificLimit,
    TimestampLimit,
    TopicIds,
)
from tidelog.spark.read._source_options import SourceOptions
from tidelog.spark.runtime.silence import SILENT, no_broker

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NO_OFFSET = -1
_GONE_AFTER_MS = 2000
"""A partition that brokers do not know for so long is gone, and not about to appear."""
_LOOK_AGAIN_S = 0.1
_PATIENCE_MS = 60_000
"""How long a leader may be away, for each of the tries."""
_PROBE_MS = 2000


class FoundPartitions(NamedTuple):
    """Partitions to read, and the ids of their topics where brokers have them."""

    partitions: set[TopicPartition]
    topic_ids: TopicIds


class OffsetReader:
    """What the partitions of one reading job hold."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: Admin | None = None
        self._heard_nothing: Exception | None = None
        """Why the last question was not answered, where that was silence."""
        self._isolation = (
            IsolationLevel.READ_COMMITTED if options.read_committed else IsolationLevel.READ_UNCOMMITTED
        )

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = self._open(self._options.broker_timeout_ms)
        return self._admin

    def _open(self, timeout_ms: int) -> Admin:
        """A client that gives up on a question after ``timeout_ms``, unless the job says when it shall."""
        # Copies of a reader on executors never need one, and it is most of what would be loaded there.
        from tidelog.client.admin.admin import Admin
        from tidelog.client.options import ADMIN

        client = {name: text for name, text in self._client.items() if name in ADMIN.options}
        timeouts = dict.fromkeys(("request.timeout.ms", "default.api.timeout.ms"), str(timeout_ms))
        return Admin(client if timeouts.keys() & client.keys() else {**client, **timeouts})

    @property
    def _client(self) -> dict[str, str]:
        return self._options.client_for("driver")

    def partitions(self) -> FoundPartitions:
        """The partitions to read; a topic or partition that is named and does not exist is refused."""
        return self._retrying(lambda: self._partitions(missing_ok=False))

    def partitions_left(self, known: SourceOffset) -> FoundPartitions:
        """The partitions to read that exist now; those that were deleted are missing.

        One of ``known`` that is missing, or whose topic has another id, may be so at a broker that has just
        started alone, so there is a while to appear again.
        """
        deadline = Deadline(_GONE_AFTER_MS)
        while True:
            found = self._retrying(lambda: self._partitions(missing_ok=True))
            is_all_there = found.partitions.issuperset(known.offsets)
            if deadline.expired or (is_all_there and not known.made_anew(SourceOffset({}, found.topic_ids))):
                return found
            time.sleep(_LOOK_AGAIN_S)

    def _partitions(self, *, missing_ok: bool) -> FoundPartitions:
        options = self._options
        topics = self._topics(missing_ok=missing_ok)
        found = {TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions}
        topic_ids = {topic.name: topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID}
        if options.assigned:
            absent = sorted(set(options.assigned) - found)
            if absent and not missing_ok:
                raise ConfigError(f"option assign names partition {absent[0]}, which does not exist")
            found &= set(options.assigned)
        return FoundPartitions(found, topic_ids)

    def _topics(self, *, missing_ok: bool) -> list[TopicDescription]:
        options = self._options
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            return [topic for topic in self.admin.list_topics() if pattern.fullmatch(topic.name)]
        names = options.topics or tuple(dict.fromkeys(each.topic for each in options.assigned))
        found = []
        for topic in self.admin.describe_topics(names).values():
            if topic.error is None:
                found.append(topic)
            elif not missing_ok or topic.error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise topic.error
        return found

    def earliest(self, partitions: Collection[TopicPartition]) -> PartitionOffsets:
        """The first offset of each partition; those that are gone are left out."""
        return self._list(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)))

    def latest(
        self, partitions: Collection[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> PartitionOffsets:
        """The offset behind the last record of each partition; those that are gone are left out.

        An answer before ``known`` offsets may come from a broker that lags behind, so it is asked for again.
        """
        specs = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
        found = self._list(specs)
        for _ in range(self._options.offset_retries):
            if all(offset >= (known or {}).get(partition, 0) for partition, offset in found.items()):
                break
            time.sleep(self._options.offset_retry_interval_ms / 1000)
            found = self._list(specs)
        return found

    def resolve(self, limit: OffsetLimit, found: FoundPartitions, *, starting: bool) -> SourceOffset:
        """The offsets that a limit means, one for every partition but those that are gone by now."""
        if isinstance(limit, SpecificLimit):
            _check_ids(found.topic_ids, limit.topic_ids, starting)
        return SourceOffset(self._resolve(limit, found.partitions, starting=starting), found.topic_ids)

    def _resolve(
        self, limit: OffsetLimit, partitions: Collection[TopicPartition], *, starting: bool
    ) -> PartitionOffsets:
        if isinstance(limit, EarliestLimit):
            return self.earliest(partitions)
        if isinstance(limit, LatestLimit):
            return self.latest(partitions)
        if isinstance(limit, SpecificLimit):
            _check_same(partitions, limit.offsets, "Offsets", starting)
            return self._resolve_specific(limit.offsets)
        if isinstance(limit, GlobalTimestampLimit):
            return self._resolve_times(dict.fromkeys(partitions, limit.timestamp), starting=starting)
        assert isinstance(limit, TimestampLimit)
        _check_same(partitions, limit.timestamps, "OffsetsByTimestamp", starting)
        return self._resolve_times(limit.timestamps, starting=starting)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets to a group; a failure is a warning, for only the display of lag needs them."""
        try:
            for result in self.admin.alter_group_offsets(group_id, offsets) if offsets else ():
                result.raise_for_error()
        except (ClientError, KafkaError) as error:
            self._heard_nothing = error if isinstance(error, SILENT) else None
            logger.warning("offsets cannot be committed to group %s: %s", group_id, error)

    def _resolve_specific(self, offsets: Mapping[TopicPartition, int]) -> PartitionOffsets:
        special = {each: offset for each, offset in offsets.items() if offset in (EARLIEST, LATEST)}
        given = {each: offset for each, offset in offsets.items() if each not in special}
        return {**given, **self._list(special)}

    def _resolve_times(self, times: Mapping[TopicPartition, int], *, starting: bool) -> PartitionOffsets:
        found = self._list(times)
        matched = {each: offset for each, offset in found.items() if offset != _NO_OFFSET}
        unmatched = sorted(found.keys() - matched.keys())
        if unmatched and starting and not self._options.begin_at_end_without_match:
            first = unmatched[0]
            raise ConfigError(
                f"no record of {first} is as young as the starting timestamp {times[first]}: choose an "
                "earlier one, or set startingOffsetsByTimestampStrategy to latest"
            )
        return {**matched, **self.latest(unmatched)}

    def _list(self, specs: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """The offsets of the partitions that there are.

        One that is missing may be so at a broker that has just started alone, so there is a while to appear.
        """
        found = self._retrying(partial(self._list_once, specs)) if specs else {}
        deadline = Deadline(_GONE_AFTER_MS)
        while not deadline.expired and (missing := specs.keys() - found.keys()):
            time.sleep(_LOOK_AGAIN_S)
            found |= self._retrying(partial(self._list_once, {each: specs[each] for each in missing}))
        return found

    def _list_once(self, specs: Mapping[TopicPartition, int]) -> PartitionOffsets:
        found: PartitionOffsets = {}
        for partition, result in self.admin.list_offsets(specs, isolation_level=self._isolation).items():
            if result.error is not None and result.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            result.raise_for_error()
            found[partition] = result.offset
        return found

    def _retrying(self, ask: Callable[[], T]) -> T:
        tries = self._options.offset_retries + 1
        patience = Deadline(tries * _PATIENCE_MS)
        while True:
            if self._heard_nothing is not None:
                self._check_anybody_answers(self._heard_nothing)
            began = Deadline(self._options.broker_timeout_ms)
            try:
                return ask()
            except (ClientError, KafkaError) as error:
                if not is_retriable(error):
                    raise
                self._heard_nothing = error if isinstance(error, SILENT) else None
                # What the client has waited for itself counts as time, everything else as a try.
                tries -= began.remaining > _PROBE_MS / 1000
                if not tries or patience.expired:
                    raise
                logger.info("asking for offsets failed and is tried again: %s", error)
                time.sleep(self._options.offset_retry_interval_ms / 1000)

    def _check_anybody_answers(self, problem: Exception) -> None:
        """Somebody was silent for long: whether all are."""
        with self._open(min(_PROBE_MS, self._options.broker_timeout_ms)) as probe:
            try:
                probe.describe_cluster()
            except SILENT as error:
                raise no_broker(self._client, self._options.broker_timeout_ms, problem) from error
        self._heard_nothing = None


def _check_ids(topic_ids: TopicIds, given: Mapping[str, Uuid], starting: bool) -> None:
    """Refuse offsets that were copied, with its id, from a topic that is gone."""
    for topic in sorted(given.keys() & topic_ids.keys()):
        if given[topic] != topic_ids[topic]:
            raise ConfigError(
                f"option {'starting' if starting else 'ending'}Offsets has offsets of a topic {topic!r} that "
                f"was deleted and made anew: leave {topic}#id:{uuid_to_text(given[topic])} out, and give "
                "offsets of the new one"
            )


def _check_same(
    partitions: Collection[TopicPartition], named: Collection[TopicPartition], what: str, starting: bool
) -> None:
    option = f"{'starting' if starting else 'ending'}{what}"
    if unnamed := sorted(set(partitions) - set(named)):
        hint = "" if "Timestamp" in what else "; -2 means earliest and -1 latest"
        raise ConfigError(
            f"option {option} names no place for {unnamed[0]}: name every partition that is read{hint}"
        )
    if unread := sorted(set(named) - set(partitions)):
        raise ConfigError(
            f"option {option} names {unread[0]}, which is not among the partitions that are read"
        )
