"""Fetches offset ranges from the leaders of their partitions, round by round.

A round asks each leader once, for as many ranges as one answer can hold, and moves the ranges on behind what
has come: their next round can be under way while the records of the last one are decoded. What is asked for
is guessed from what records of the topic took so far, so that little is fetched beyond the end of a range.

Leaders that moved, brokers that restart and partitions without a leader are waited for, up to
``poll_timeout_ms`` without progress, as long as any broker answers within ``broker_timeout_ms``. Offsets that
are gone (retention has overtaken the reader, a topic was deleted or made anew) are counted and reported to
``RangeSettings.report_loss``. Runs on the loop of a ``FetchLink``; used by ``spark.read._range_reader`` and
``client.scanning``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.client._network.retry import Deadline
from tidelog.client._offsets import list_offsets
from tidelog.client._ranges.fetch_link import FetchLink
from tidelog.client._ranges.offset_range import OffsetRange, count_offsets
from tidelog.client.consumer._fetch.fetch_request import LOWEST_VERSION, NAMES_UNTIL, encode_fetch_request
from tidelog.client.consumer._fetch.fetch_session import FetchSession, PartitionAsk
from tidelog.client.errors import NO_ANSWER, RequestTimeoutError, is_retriable
from tidelog.client.metadata import LeaderHint, Node, PartitionMetadata
from tidelog.client.resources import OffsetSpec
from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, TopicPartition
from tidelog.records.batch import MAGIC_V2, BatchHeader, iter_batches
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import FetchedPartition, decode_fetch_response
from tidelog.wire.messages.fetch import FetchRequest

_HIGHEST_VERSION = FetchRequest.VERSIONS[1]
_GUESS_SLACK = 1.05
_BATCH_SLACK_BYTES = 64 << 10
_PROBE_MS = 2000
"""How long a broker has to answer when others were silent for all of the time that there is."""
_LEAST_REQUEST_MS = 5000
_GONE_AFTER_MS = 2000
"""A partition that metadata does not know for so long is gone, and not about to appear."""

_UNKNOWN = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
_PASSING = _UNKNOWN | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


@dataclass(slots=True)
class RangeProgress:
    """A range and how far it was fetched."""

    range: OffsetRange
    position: int
    unknown_until: Deadline | None = None
    """When a partition that metadata has not known since counts as gone; None while it is known."""

    @property
    def is_done(self) -> bool:
        return self.position >= self.range.end

    @property
    def remaining(self) -> int:
        return self.range.end - self.position


class Chunk(NamedTuple):
    """Whole batches of one range, in order; the first may begin before ``start``."""

    range: OffsetRange
    start: int
    data: memoryview | bytes
    batches: list[tuple[int, BatchHeader]]
    aborted: Sequence[tuple[int, int]]
    """Aborted transactions: producer id and first offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSettings:
    """How long a reader of ranges waits, and what it does where it cannot go on."""

    poll_timeout_ms: int = 120_000
    """How long to wait for the next records of a range."""
    broker_timeout_ms: int = 20_000
    """How long to wait while no broker answers at all."""
    report_loss: Callable[[str], object]
    """Receives a sentence that counts the offsets that are gone; raises, unless reading may go on."""
    no_broker: Callable[[int, BaseException], Exception]
    """The error for the case that no broker has answered for so many milliseconds."""
    poll_timeout_option: str
    """What errors call ``poll_timeout_ms``."""
    option_prefix: str = ""
    """How the names of the client's options begin in errors."""


class RangeFetcher:
    """Reads the ranges of one task."""

    def __init__(self, link: FetchLink, settings: RangeSettings) -> None:
        self._link = link
        self._cluster = link.cluster
        self._settings = settings
        self._poll_timeout_ms = settings.poll_timeout_ms
        self._broker_timeout_ms = settings.broker_timeout_ms
        self._config = link.config
        self._silence = Deadline(self._broker_timeout_ms)
        """Until when a broker, whichever, has to have answered."""

    async def fetch(self, ranges: Sequence[RangeProgress], max_bytes: int | None = None) -> list[Chunk]:
        """The next records of ``ranges``, which move on; empty where all that was left of one is lost.

        A broker sends at most ``max_bytes``, but for the first batch, and no more than the options allow.
        """
        self._config = config = self._link.config
        if max_bytes is not None:
            self._config = replace(
                config,
                max_bytes=min(max_bytes, config.max_bytes),
                max_partition_bytes=min(max_bytes, config.max_partition_bytes),
            )
        deadline = Deadline(self._poll_timeout_ms)
        self._silence = Deadline(self._broker_timeout_ms)
        backoff = self._cluster.backoff()
        trouble: Exception | None = None
        while True:
            before = [each.position for each in ranges]
            try:
                await self._know({each.range.topic for each in ranges})
                chunks = await self._fetch_once([each for each in ranges if not each.is_done])
                trouble = None
            except Exception as error:
                if not is_retriable(error):
                    raise
                chunks, trouble = [], error
            if chunks or before != [each.position for each in ranges]:
                return chunks
            if deadline.expired:
                raise self._too_late(ranges, trouble)
            if trouble is not None:
                self._link.forget({each.range.topic for each in ranges})
                await asyncio.sleep(min(backoff.next_ms() / 1000, deadline.remaining))

    async def _know(self, topics: Collection[str]) -> None:
        """Have metadata, from whichever broker answers first."""
        limit_ms = min(self._broker_timeout_ms, self._poll_timeout_ms)
        try:
            left_ms = min(max(self._silence.remaining_ms, _PROBE_MS), limit_ms)
            await self._link.know(topics, Deadline(left_ms))
        except NO_ANSWER as error:
            raise self._settings.no_broker(limit_ms, error) from error
        self._silence = Deadline(self._broker_timeout_ms)

    async def _fetch_once(self, ranges: Sequence[RangeProgress]) -> list[Chunk]:
        by_leader: dict[Node, dict[TopicPartition, tuple[RangeProgress, PartitionMetadata]]] = {}
        unknown: list[tuple[RangeProgress, Exception]] = []
        for each in ranges:
            partition = each.range.topic_partition
            try:
                self._check_id(each.range)
                node, known = self._cluster.leader_of(partition)
            except Exception as error:
                if not is_retriable(error):
                    raise
                if not _is_unknown(error):
                    each.unknown_until = None
                unknown.append((each, error))
                continue
            each.unknown_until = None
            by_leader.setdefault(node, {}).setdefault(partition, (each, known))
        asked = [self._fetch_from(node, wanted) for node, wanted in by_leader.items()]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        chunks: list[Chunk] = []
        problems = [error for _, error in unknown]
        for answer in answers:
            if isinstance(answer, Exception):
                problems.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                chunks += answer
        self._link.forget({each.range.topic for each, _ in unknown})
        self._notice_gone([(each, error) for each, error in unknown if _is_unknown(error)])
        for problem in problems:
            if not chunks or not is_retriable(problem):
                raise problem
        return chunks

    def _check_id(self, wanted: OffsetRange) -> None:
        """Raise where the topic by this name is another one than was planned for."""
        found = self._cluster.metadata.topics.get(wanted.topic)
        if found is None or wanted.topic_id is None or found.topic_id in (ZERO_UUID, wanted.topic_id):
            return
        raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"topic {wanted.topic!r} was deleted and made anew")

    async def _fetch_from(
        self, node: Node, wanted: dict[TopicPartition, tuple[RangeProgress, PartitionMetadata]]
    ) -> list[Chunk]:
        """Ask one leader once; of errors that may pass the last is raised, where nothing else has come."""
        session = FetchSession()
        request = session.build_once(self._window(wanted))
        config = self._config
        await self._cluster.connection_to(node, Deadline(config.request_timeout_ms))
        highest = _HIGHEST_VERSION if request.has_topic_ids else NAMES_UNTIL
        version = self._cluster.api_version(node, ApiKey.FETCH, LOWEST_VERSION, highest)
        body = encode_fetch_request(request, version, config)
        timeout_ms = min(config.request_timeout_ms, max(self._broker_timeout_ms, _LEAST_REQUEST_MS))
        answer = await self._cluster.exchange(node, ApiKey.FETCH, version, [body], timeout_ms=timeout_ms)
        self._silence = Deadline(self._broker_timeout_ms)
        result = decode_fetch_response(version, memoryview(answer))
        self._cluster.throttle(node, result.throttle_time_ms)
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), f"broker {node.id} refuses to answer fetches")
        chunks: list[Chunk] = []
        problem: Exception | None = None
        for name, topic_id, fetched in result.topics:
            topic = name if topic_id is None else session.topic_names.get(topic_id)
            if topic is None:
                continue
            for each in fetched:
                progress, _ = wanted[TopicPartition(topic, each.partition)]
                is_first = progress.range.topic_partition == next(iter(request.to_send))
                try:
                    chunk = await self._accept(progress, each, is_first=is_first)
                except Exception as error:
                    # What others have brought is kept: their positions are behind it.
                    if not is_retriable(error):
                        raise
                    problem = error
                    self._note_leader(progress, each, [Node(*endpoint) for endpoint in result.node_endpoints])
                    continue
                if chunk is not None:
                    chunks.append(chunk)
        if problem is not None:
            if not chunks:
                raise problem
            self._link.forget({topic for topic, _ in wanted})
        return chunks

    def _window(
        self, wanted: dict[TopicPartition, tuple[RangeProgress, PartitionMetadata]]
    ) -> dict[TopicPartition, PartitionAsk]:
        """What to ask one leader for: the first ranges, up to what one answer can bring."""
        config = self._config
        asks: dict[TopicPartition, PartitionAsk] = {}
        guessed_bytes = 0
        for partition, (progress, known) in wanted.items():
            size = progress.remaining * self._link.record_bytes(partition.topic) * _GUESS_SLACK
            ask_bytes = min(int(size) + _BATCH_SLACK_BYTES, config.max_partition_bytes)
            topic_id = self._cluster.metadata.topics[partition.topic].topic_id
            asks[partition] = PartitionAsk(topic_id, progress.position, ask_bytes, known.leader_epoch)
            guessed_bytes += ask_bytes
            if guessed_bytes >= 2 * config.max_bytes:
                break
        return asks

    async def _accept(
        self, progress: RangeProgress, fetched: FetchedPartition, *, is_first: bool
    ) -> Chunk | None:
        """Take what came of a partition; ``is_first`` is the one that an answer has a whole batch of."""
        if fetched.error_code:
            await self._failed(progress, ErrorCode(fetched.error_code))
            return None
        data = fetched.records
        if not data:
            return None
        assert isinstance(data, memoryview | bytes)
        start, end = progress.position, progress.range.end
        batches, after = _batches_within(progress, data)
        if after == start:
            if not is_first:
                return None
            prefix = self._settings.option_prefix
            raise CorruptRecordError(
                f"the batch at offset {start} of {progress.range.topic_partition} is larger than a fetch may "
                f"be: raise {prefix}fetch.max.bytes and {prefix}max.partition.fetch.bytes"
            )
        if batches:
            at, last = batches[-1]
            first = batches[0][1]
            offsets = last.next_offset - (first.base_offset if first.magic == MAGIC_V2 else start)
            self._link.learn_record_bytes(progress.range.topic, at + last.size_bytes, offsets)
        progress.position = min(after, end)
        return Chunk(progress.range, start, data, batches, fetched.aborted_transactions or ())

    # What can go wrong with a partition

    async def _failed(self, progress: RangeProgress, code: ErrorCode) -> None:
        """Take note of a partition's error; raises it where another round would be no better now."""
        partition = progress.range.topic_partition
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(progress)
            return
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise KafkaError(code, f"this client may not read topic {partition.topic!r}")
        error = KafkaError(
            code, f"partition {partition} cannot be read at offset {progress.position}: {code.name}"
        )
        if code in _PASSING:
            # UNKNOWN_SERVER_ERROR is not retriable by Kafka's table, but a broker that stops answers with it.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
        raise error

    def _note_leader(self, progress: RangeProgress, fetched: FetchedPartition, nodes: Sequence[Node]) -> None:
        if fetched.current_leader is not None and fetched.current_leader[0] >= 0:
            hint = LeaderHint(*fetched.current_leader)
            self._cluster.note_leaders({progress.range.topic_partition: hint}, nodes)

    async def _out_of_range(self, progress: RangeProgress) -> None:
        """The log has no record at the position: go on behind what is lost."""
        partition = progress.range.topic_partition
        first = await self._offset_of(partition, OffsetSpec.EARLIEST)
        after = await self._offset_of(partition, OffsetSpec.LATEST)
        position, end = progress.position, progress.range.end
        if position < first:
            lost = min(first, end) - position
            why = f"the log begins at {first} now (retention has overtaken the reader)"
            progress.position = min(first, end)
        elif after < end:
            lost = end - position
            why = f"the log ends at {after} now (was the topic made anew?)"
            progress.position = end
        else:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader of {partition} lags behind")
        self._settings.report_loss(
            f"{count_offsets(lost)} of {partition}, from {position} on, are gone: {why}"
        )

    async def _offset_of(self, partition: TopicPartition, spec: OffsetSpec) -> int:
        found = (await list_offsets(self._cluster, {partition: int(spec)}))[partition]
        found.raise_for_error()
        return found.offset

    def _notice_gone(self, ranges: Sequence[tuple[RangeProgress, Exception]]) -> None:
        """Metadata does not know these partitions, or not these topics; after a while they are lost."""
        for each, error in ranges:
            each.unknown_until = each.unknown_until or Deadline(_GONE_AFTER_MS)
            if not each.unknown_until.expired:
                continue
            lost, position, each.position = each.remaining, each.position, each.range.end
            is_new = isinstance(error, KafkaError) and error.code is ErrorCode.INCONSISTENT_TOPIC_ID
            self._settings.report_loss(
                f"{count_offsets(lost)} of {each.range.topic_partition}, from {position} on, are gone: "
                + ("the topic was deleted and made anew" if is_new else "the partition was deleted")
            )

    def _too_late(self, ranges: Sequence[RangeProgress], trouble: Exception | None) -> Exception:
        first = next(each for each in ranges if not each.is_done)
        why = f": {trouble}" if trouble is not None else ", which the broker does not send"
        return RequestTimeoutError(
            f"no record of {first.range.topic_partition} from offset {first.position} on within "
            f"{self._settings.poll_timeout_option}={self._poll_timeout_ms}{why}"
        )


def _is_unknown(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code in _UNKNOWN


def _batches_within(
    progress: RangeProgress, data: memoryview | bytes
) -> tuple[list[tuple[int, BatchHeader]], int]:
    """The batches of an answer that belong to a range, and the offset behind them."""
    batches: list[tuple[int, BatchHeader]] = []
    after = progress.position
    for at, header in iter_batches(data):
        # Of a compressed message of format 0 or 1 only the last offset is known.
        first_offset = header.base_offset if header.magic == MAGIC_V2 else after
        if first_offset >= progress.range.end:
            return batches, progress.range.end
        batches.append((at, header))
        after = max(header.next_offset, after)
    return batches, after
