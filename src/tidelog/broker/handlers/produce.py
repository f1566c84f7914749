"""Produce 3 to 13: append batches to the partitions that this broker leads.

Versions 0 to 2 are advertised and not served: a request in one of them closes the connection, as in Kafka
4.

Behaviour as in Kafka: every partition is answered by itself; acks must be 0, 1 or -1; internal topics take
records only from Kafka's own admin client id; zstd needs version 7; with acks=0 nothing is answered, and
the connection is closed on an error so that the client notices; with acks=-1 the answer waits for all
in-sync replicas, at most the request's timeout, and where the topic has ``flush.messages`` every answer for
the sync (``broker/produce_wait``). Error messages and record errors are sent for batches refused because of
their records.

Two stages: ``handle_frame`` checks and stages the batches of a request in the append group, in the order of
requests; ``StagedProduce.settle`` answers when the group has been written. A request whose batches take long
to judge (``broker/judging``), or that has very many of them, waits in between and is written by itself; one
about hundreds of partitions is read and answered in slices too (``broker/slow_lane``).

Transactional records are taken in a transaction that is open in their partition, or that its coordinator
vouches for; from version 12 on they open it (KIP-890): see ``broker/transactional_produce``. Without a
transactional id they are TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

Differences: transactional records without a transactional id are refused by themselves, where Kafka refuses
their whole request; a partition that a request names twice gets both batches, where Kafka takes the second
alone; null records are answered, where Kafka's answer never comes; a batch whose size or magic cannot be is
refused by itself, where Kafka refuses its whole request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.judging import Judgements, RequestJudging, judge_at_once, takes_long
from tidelog.broker.partition_errors import error_code
from tidelog.broker.pending import NO_ANSWER, NOT_YET, NoAnswer, NotYet, PendingAnswer, StagedAnswer
from tidelog.broker.produce_wait import ProduceWait, WrittenBatch
from tidelog.broker.slow_lane import SlowLane, Work
from tidelog.broker.transaction_verification import UNVERIFIED_OK, Verified
from tidelog.broker.transactional_produce import (
    NotVerifiedError,
    TransactionalRequests,
    answer_when_verified,
)
from tidelog.coordinator.reply import Reply
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, WireError
from tidelog.ids import Uuid
from tidelog.records.compression import Codec
from tidelog.replication.append_group import AppendGroup
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.storage.log_append import AppendInfo, Judged
from tidelog.storage.validation import NoBatchError, RecordsRefusedError
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch_request import SLICE, drained
from tidelog.wire.primitives import Endpoint
from tidelog.wire.produce import (
    ParsedProduce,
    PartitionAnswer,
    TopicAnswer,
    TopicRecords,
    encode_produce_in_slices,
    encode_produce_response,
    parse_produce_in_slices,
    parse_produce_request,
    parse_short_produce,
)

if TYPE_CHECKING:
    from tidelog.broker.app import Broker
    from tidelog.broker.connection import Connection
    from tidelog.broker.inbox import KeptFrame

API = ApiKey.PRODUCE
VERSIONS = (3, 13)

logger = logging.getLogger(__name__)

# What is staged and written in one turn of the loop: so many batches, or so many bytes.
_MANY_BATCHES = 200
_LARGE_FRAME_BYTES = 4 * 1024 * 1024
# With acks=0 so many are named where a connection is closed because of what was refused.
_NAMED_REFUSALS = 20
_ADMIN_CLIENT_ID = b"__admin_client"
_ZSTD_SINCE = 7
_ATTRIBUTES_AT = 22
_CODEC_MASK = 0x07
_TRANSACTIONAL = 0x10
# Refusals that say nothing about the log, so that the answer does not either.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

SlowBatch = tuple[int, Partition, memoryview]
Entry = tuple[int, Partition | None, AppendInfo | KafkaError]
Topic = tuple[str | None, Uuid | None, list[Entry]]


class ProduceCall(NamedTuple):
    """One request, parsed; its records are views of ``frame``."""

    connection: Connection
    frame: memoryview
    pos: int
    version: int
    correlation_id: int
    request: ParsedProduce


class ProduceHandler:
    """Stages produce requests of one broker in its append group."""

    def __init__(self, broker: Broker, group: AppendGroup, lane: SlowLane | None = None) -> None:
        self.broker = broker
        self.group = group
        self._staged = group.staged
        self._by_name = broker.partitions.by_name
        self._by_id = broker.partitions.by_id
        self._transactional: TransactionalRequests | None = None
        self._lane = lane or SlowLane(broker.clock)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _transactions(self) -> TransactionalRequests:
        if self._transactional is None:
            self._transactional = TransactionalRequests(self.broker.coordinators.verification, self._find)
        return self._transactional

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> StagedAnswer | PendingAnswer | NotYet:
        """Check and stage the batches of one request, or begin to."""
        request = parse_short_produce(frame, pos, version)
        if request is None:
            return self._take_wide(connection, connection.keep(frame), pos, version, correlation_id)
        if connection.has_unanswered and not self._takes_writes(request):
            return NOT_YET
        call = ProduceCall(connection, frame, pos, version, correlation_id, request)
        transactional_id, _, _, topics = request
        verified: Verified | None = None
        if transactional_id is not None:
            try:
                asked = self._transactions.verify(transactional_id, version, topics)
            except NotVerifiedError as refusal:
                return self._refuse(call, refusal)
            if not asked.done:
                call, release = self._keep(call)
                return answer_when_verified(
                    asked,
                    lambda known: self._judge_apart(call, self._slow_batches(call), known, release),
                    release,
                )
            verified = asked.result()
        if len(topics) == 1 and len(topics[0][2]) == 1:
            # What nearly every request is: one batch, and mostly one that is judged as it is staged.
            name, topic_id, ((index, records),) = topics[0]
            if not takes_long(self._find(name, topic_id, index), records):
                return self._stage(call, verified, None)
        elif len(topics) != 1 or len(topics[0][2]) > _MANY_BATCHES or len(frame) > _LARGE_FRAME_BYTES:
            count = sum(len(partitions) for _, _, partitions in topics)
            if count > _MANY_BATCHES or len(frame) > _LARGE_FRAME_BYTES:
                call, release = self._keep(call)
                return self._judge_apart(call, self._slow_batches(call), verified, release)
        slow = self._slow_batches(call)
        if not slow:
            return self._stage(call, verified, None)
        judging = RequestJudging(slow)
        if judge_at_once(judging):
            return self._stage(call, verified, judging.judged)
        call, release = self._keep(call)
        return self._judge_apart(call, self._slow_batches(call), verified, release)

    def _takes_writes(self, request: ParsedProduce) -> bool:
        """Whether all partitions of a request take records just now."""
        _, acks, _, topics = request
        for name, topic_id, partitions in topics:
            for index, _ in partitions:
                partition = self._find(name, topic_id, index)
                if partition is None or not partition.takes_writes(acks):
                    return False
        return True

    def _takes_writes_in_slices(self, request: ParsedProduce) -> Work[bool]:
        """The same, slowly."""
        transactional_id, acks, timeout_ms, topics = request
        for name, topic_id, partitions in topics:
            for start in range(0, len(partitions), SLICE):
                some = [(name, topic_id, partitions[start : start + SLICE])]
                if not self._takes_writes((transactional_id, acks, timeout_ms, some)):
                    return False
                yield
        return True

    def _keep(self, call: ProduceCall) -> tuple[ProduceCall, Callable[[], None]]:
        """The same request in memory of its own, and what gives that back."""
        frame = call.connection.keep(call.frame)
        request = parse_produce_request(frame.view, call.pos, call.version)
        return call._replace(frame=frame.view, request=request), frame.release

    def _take_wide(
        self, connection: Connection, frame: KeptFrame, pos: int, version: int, correlation_id: int
    ) -> PendingAnswer:
        """Read and carry out a request about so many partitions that even reading it takes a while."""
        pending = PendingAnswer()

        async def take() -> None:
            try:
                pending.follow(await self._read_wide(connection, frame, pos, version, correlation_id))
            except WireError as error:
                frame.release()
                pending.fail(str(error))
            except Exception:
                logger.exception("A wide produce request of %s failed", connection)
                frame.release()
                pending.fail("its produce request could not be handled")

        self._begin(take())
        return pending

    async def _read_wide(
        self, connection: Connection, frame: KeptFrame, pos: int, version: int, correlation_id: int
    ) -> bytes | NoAnswer | PendingAnswer:
        run = self._lane.run
        request = await run(parse_produce_in_slices(frame.view, pos, version))
        call = ProduceCall(connection, frame.view, pos, version, correlation_id, request)
        transactional_id, _, _, topics = request
        verified: Verified | None = None
        if transactional_id is not None:
            try:
                asked = await run(self._transactions.verify_in_slices(transactional_id, version, topics))
            except NotVerifiedError as refusal:
                outcome = await run(self._refuse(call, refusal).settle_in_slices())
                frame.release()
                return outcome
            verified = await _settled(asked)
        return self._judge_apart(call, await run(self._slow_in_slices(call)), verified, frame.release)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def answer_wide(self, encoding: Work[bytes]) -> PendingAnswer:
        """The answer to a request about so many partitions that writing it takes a while."""
        pending = PendingAnswer()

        async def write() -> None:
            try:
                pending.resolve(await self._lane.run(encoding))
            except Exception:
                logger.exception("Unexpected error in the answer to a wide produce request")
                pending.fail("its produce request could not be answered")

        self._begin(write())
        return pending

    def _slow_batches(self, call: ProduceCall) -> list[SlowBatch]:
        """The batches that take long to judge, by their number in the request."""
        slow: list[SlowBatch] = []
        number = 0
        for topic in call.request[3]:
            self._note_slow(slow, number, topic)
            number += len(topic[2])
        return slow

    def _slow_in_slices(self, call: ProduceCall) -> Work[list[SlowBatch]]:
        """The same, slowly."""
        slow: list[SlowBatch] = []
        number = seen = 0
        for name, topic_id, partitions in call.request[3]:
            for start in range(0, len(partitions), SLICE):
                some = partitions[start : start + SLICE]
                self._note_slow(slow, number, (name, topic_id, some))
                number += len(some)
                seen += len(some)
                if seen >= SLICE:
                    seen = 0
                    yield
        return slow

    def _note_slow(self, slow: list[SlowBatch], number: int, topic: TopicRecords) -> None:
        """Note those of a topic's batches that take long; the first has ``number``."""
        name, topic_id, partitions = topic
        for index, records in partitions:
            partition = (
                self._by_name.get((name, index)) if topic_id is None else self._by_id.get((topic_id, index))
            )
            if partition is not None and records is not None and takes_long(partition, records):
                slow.append((number, partition, records))
            number += 1

    def _judge_apart(
        self,
        call: ProduceCall,
        slow: list[SlowBatch],
        verified: Verified | None,
        release: Callable[[], None],
    ) -> PendingAnswer:
        """Judge in a thread what takes long, then stage, write and answer the request by itself."""
        pending = PendingAnswer()
        connection = call.connection
        threads = self.broker.judging_threads
        wants_answer = call.request[1] != 0

        def is_wanted() -> bool:
            # A client that wants no answer may go as soon as it has sent.
            return not connection.closed or (not wants_answer and threads.are_few)

        judging = RequestJudging(slow, is_wanted)

        def judged(failure: Exception | None) -> None:
            if judging.given_up:
                release()
                return
            if failure is not None:
                logger.error("Judging a request of %s failed", call.connection, exc_info=failure)
                release()
                pending.fail("its produce request could not be handled")
                return
            self._begin(self._finish(call, verified, judging.judged, release, pending))

        if slow:
            threads.judge(judging, judged)
        else:
            judged(None)
        return pending

    async def _finish(
        self,
        call: ProduceCall,
        verified: Verified | None,
        judged: Judgements,
        release: Callable[[], None],
        pending: PendingAnswer,
    ) -> None:
        # A group of its own: in that of the connections somebody else's batches may be staged.
        apart = ProduceHandler(self.broker, AppendGroup(self.broker.log_dir_failed), self._lane)
        if not await self._lane.run(self._takes_writes_in_slices(call.request)):
            # What would be refused waits for its turn: see ``broker/pending``.
            await call.connection.turn_of(pending)
        try:
            staged = await self._lane.run(apart.stage_in_slices(call, verified, judged))
            outcome = await self._lane.run(staged.settle_in_slices())
        except Exception:
            logger.exception("A produce request of %s that was judged apart failed", call.connection)
            pending.fail("its produce request could not be handled")
        else:
            pending.follow(outcome)
        finally:
            release()

    def stage_in_slices(
        self, call: ProduceCall, verified: Verified | None, judged: Judgements
    ) -> Work[StagedProduce]:
        """Stage and write the batches of a request one by one."""
        topics: list[Topic] = []
        number = -1
        for name, topic_id, partitions in call.request[3]:
            entries: list[Entry] = []
            for index, records in partitions:
                number += 1
                entry = self._stage_one(call, name, topic_id, index, records, verified, judged.get(number))
                self.group.commit()
                if entry[1] in self.group.failed:
                    entry = index, entry[1], KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
                entries.append(entry)
                yield
            if entries:
                topics.append((name, topic_id, entries))
        self.group.failed.clear()
        refused = any(isinstance(entry[2], KafkaError) for topic in topics for entry in topic[2])
        return StagedProduce(self, call, topics, refused)

    def _stage(self, call: ProduceCall, verified: Verified | None, judged: Judgements | None) -> StagedAnswer:
        """Stage all batches of a request; the connection has them written."""
        _, acks, _, topics = call.request
        version = call.version
        usual = version >= _ZSTD_SINCE and -1 <= acks <= 1
        staged: list[Topic] = []
        refused = False
        number = -1
        for name, topic_id, partitions in topics:
            entries: list[Entry] = []
            for index, records in partitions:
                number += 1
                partition = (
                    self._by_name.get((name, index))
                    if topic_id is None
                    else self._by_id.get((topic_id, index))
                )
                if (
                    not usual
                    or judged is not None
                    or partition is None
                    or records is None
                    or partition.is_internal
                    or len(records) <= _ATTRIBUTES_AT
                    or records[_ATTRIBUTES_AT] & _TRANSACTIONAL
                ):
                    known = None if judged is None else judged.get(number)
                    entry = self._stage_one(call, name, topic_id, index, records, verified, known)
                    refused = refused or isinstance(entry[2], KafkaError)
                    entries.append(entry)
                    continue
                try:
                    entries.append((index, partition, partition.stage(records, acks)))
                    self._staged[partition] = None
                except Exception as error:
                    refused = True
                    entries.append((index, partition, self._refusal(partition, name, index, error)))
            if entries:
                staged.append((name, topic_id, entries))
        return StagedProduce(self, call, staged, refused)

    def _stage_one(
        self,
        call: ProduceCall,
        name: str | None,
        topic_id: Uuid | None,
        index: int,
        records: memoryview | None,
        verified: Verified | None,
        judged: Judged | None,
    ) -> Entry:
        """Stage a batch about which something is unusual."""
        transactional_id, acks, _, _ = call.request
        partition = self._find(name, topic_id, index)
        try:
            _refuse_transactions(records, transactional_id)
            partition, records = self._examine(call, partition, name, topic_id, index, records, verified)
            info = partition.stage(records, acks, judged=judged)
        except Exception as error:
            return index, partition, self._refusal(partition, name, index, error)
        self._staged[partition] = None
        return index, partition, info

    def _refuse(self, call: ProduceCall, refusal: KafkaError) -> StagedProduce:
        """Nothing of a request is taken."""
        refused: list[Topic] = [
            (name, topic_id, [(index, None, refusal) for index, _ in partitions])
            for name, topic_id, partitions in call.request[3]
        ]
        return StagedProduce(self, call, refused, True)

    def _find(self, name: str | None, topic_id: Uuid | None, index: int) -> Partition | None:
        return self._by_name.get((name, index)) if topic_id is None else self._by_id.get((topic_id, index))

    def _refusal(
        self, partition: Partition | None, topic: str | None, index: int, error: Exception
    ) -> KafkaError:
        """What to tell the client about a batch that was not staged."""
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, LogDirOfflineError) and partition is not None:
            self.group.lose(partition, error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        where = partition.topic_partition if partition is not None else f"{topic}-{index}"
        return KafkaError(error_code(self.broker, error, "appending to", where))

    def _examine(
        self,
        call: ProduceCall,
        partition: Partition | None,
        name: str | None,
        topic_id: Uuid | None,
        index: int,
        records: memoryview | None,
        verified: Verified | None,
    ) -> tuple[Partition, memoryview]:
        """What is unusual about a batch or where it goes; raises what is wrong with it, in Kafka's order."""
        version = call.version
        partitions = self.broker.partitions
        if partition is None:
            partition = (
                partitions.get(name, index) if topic_id is None else partitions.get_by_id(topic_id, index)
            )
        if records is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"Produce requests with version {version} must have at least one record batch per partition",
            )
        if (
            version < _ZSTD_SINCE
            and len(records) > _ATTRIBUTES_AT
            and records[_ATTRIBUTES_AT] & _CODEC_MASK == Codec.ZSTD
        ):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce requests with version {version} are not allowed to use ZStandard compression",
            )
        self._transactions.check(partition, records, verified or UNVERIFIED_OK, version)
        if not -1 <= call.request[1] <= 1:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if partition.is_internal and not _is_admin_client(call.frame):
            topic = partition.topic_partition.topic
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
        return partition, records


class StagedProduce(StagedAnswer):
    """A produce request whose batches are staged."""

    __slots__ = ("_acks", "_call", "_handler", "_topics")

    def __init__(
        self, handler: ProduceHandler, call: ProduceCall, topics: list[Topic], refused: bool
    ) -> None:
        self.refused = refused
        self._handler = handler
        self._call = call
        self._acks = call.request[1]
        self._topics = topics

    def settle(self) -> bytes | NoAnswer | PendingAnswer:
        """Answer, now that the group is written, or once it is synced and replicated as it has to be."""
        acks = self._acks
        call = self._call
        failed = self._handler.group.failed
        topics = self._topics
        if acks and not failed and len(topics) == 1 and len(topics[0][2]) == 1:
            # What nearly every request is: one batch for one partition, and all went well.
            name, topic_id, ((index, partition, info),) = topics[0]
            if type(info) is AppendInfo and (
                partition.log.high_watermark > info[1] or (acks == 1 and not partition.flushing)  # type: ignore[union-attr]
            ):
                result = index, 0, info[0], info[2], info[3], (), None, None
                return encode_produce_response(
                    call.version, call.correlation_id, ((name, topic_id, (result,)),)
                )
        return drained(self.settle_in_slices())

    def settle_in_slices(self) -> Work[bytes | NoAnswer | PendingAnswer]:
        """The same, slowly, for a request that was written by itself."""
        acks = self._acks
        call = self._call
        failed = self._handler.group.failed
        answers: list[TopicAnswer] = []
        wait: ProduceWait | None = None
        seen = 0
        for name, topic_id, entries in self._topics:
            results: list[PartitionAnswer] = []
            answers.append((name, topic_id, results))
            for index, partition, info in entries:
                seen += 1
                if not seen % SLICE:
                    yield
                if type(info) is not AppendInfo or partition is None or partition in failed:
                    self.refused = True
                    results.append(self._refused(index, partition, info))
                    continue
                if (
                    acks
                    and partition.log.high_watermark <= info.last_offset
                    and (acks == ACKS_ALL or partition.flushing)
                ):
                    if wait is None:
                        deadlines = self._handler.broker.deadlines
                        wait = ProduceWait(acks, lambda: self._encode(answers), deadlines)
                    wait.add(WrittenBatch(partition, info.last_offset + 1, results, len(results)))
                results.append(
                    (
                        index,
                        0,
                        info.first_offset,
                        info.log_append_time_ms,
                        info.log_start_offset,
                        (),
                        None,
                        None,
                    )
                )
        if acks == 0:
            return self._close() if self.refused else NO_ANSWER
        if wait is not None:
            return wait.start(call.request[2], refused=self.refused)
        return (yield from self._encode_in_slices(answers))

    def _encode(self, answers: list[TopicAnswer]) -> bytes | PendingAnswer:
        """The answer, at once unless it is about very many partitions."""
        if sum(len(results) for _, _, results in answers) > SLICE:
            return self._handler.answer_wide(self._encode_in_slices(answers))
        call = self._call
        return encode_produce_response(
            call.version, call.correlation_id, answers, 0, self._endpoints(answers)
        )

    def _encode_in_slices(self, answers: list[TopicAnswer]) -> Work[bytes]:
        call = self._call
        return encode_produce_in_slices(
            call.version, call.correlation_id, answers, 0, self._endpoints(answers)
        )

    def _endpoints(self, answers: list[TopicAnswer]) -> Sequence[Endpoint]:
        """The addresses of the leaders that an answer points to (KIP-951)."""
        leaders = {result[7][0] for _, _, results in answers for result in results if result[7] is not None}
        return self._handler.broker.endpoints(leaders, self._call.connection.listener) if leaders else ()

    def _refused(
        self, index: int, partition: Partition | None, error: AppendInfo | KafkaError
    ) -> PartitionAnswer:
        if not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        code = error.code
        log_start = -1
        if partition is not None and code not in _WITHOUT_LOG_START:
            log_start = partition.log.log_start_offset
        leader = None
        if partition is not None and code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = partition.leader, partition.leader_epoch
        message = None
        if isinstance(error, NotVerifiedError):
            log_start = -1
            message = error.message or None
        elif isinstance(error, NoBatchError):
            log_start = -1
            message = error.message or None if code == ErrorCode.CORRUPT_MESSAGE else None
        record_errors: list[tuple[int, str | None]] = []
        if isinstance(error, RecordsRefusedError):
            message = error.message
            record_errors = [(refused.batch_index, refused.message) for refused in error.record_errors]
        return index, code, -1, -1, log_start, record_errors, message, leader

    def _close(self) -> PendingAnswer:
        """With acks=0 there is no answer to put an error in; a closed connection is the answer."""
        refused = [
            f"{name or topic_id!r}-{index}: {error if isinstance(error, KafkaError) else 'not written'}"
            for name, topic_id, index, error in islice(self._refusals(), _NAMED_REFUSALS + 1)
        ]
        if len(refused) > _NAMED_REFUSALS:
            refused[-1] = "and others"
        pending = PendingAnswer()
        pending.fail(f"a produce request with acks=0 failed ({', '.join(refused)})")
        return pending

    def _refusals(self) -> Iterator[tuple[str | None, Uuid | None, int, AppendInfo | KafkaError]]:
        for name, topic_id, entries in self._topics:
            for index, partition, error in entries:
                if isinstance(error, KafkaError) or partition in self._handler.group.failed:
                    yield name, topic_id, index, error


async def _settled(reply: Reply[Verified]) -> Verified:
    """The value of a reply, once it is there."""
    done = asyncio.get_running_loop().create_future()
    reply.when_done(lambda _: None if done.done() else done.set_result(None))
    await done
    return reply.result()


def _refuse_transactions(records: memoryview | None, transactional_id: str | None) -> None:
    if transactional_id is not None or records is None or len(records) <= _ATTRIBUTES_AT:
        return
    if records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Transactional records came without a transactional id",
        )


def _is_admin_client(frame: memoryview) -> bool:
    length = int.from_bytes(frame[8:10], "big", signed=True)
    return length > 0 and frame[10 : 10 + length] == _ADMIN_CLIENT_ID
