"""Produce 3 to 13: append batches to the partitions that this broker leads.

Versions 0 to 2 are advertised and not served: a request in one of them closes the connection, as in Kafka
4.

Behaviour as in Kafka: every partition is answered by itself; acks must be 0, 1 or -1; internal topics take
records only from Kafka's own admin client id; zstd needs version 7; with acks=0 nothing is answered, and the
connection is closed on an error so that the client notices; with acks=-1 the answer waits for all in-sync
replicas, at most the request's timeout, and where the topic has ``flush.messages`` every answer for the sync
(``broker/produce/produce_wait``). Error messages and record errors are sent for batches refused because of
their records.

Two stages: ``handle_frame`` checks and stages the batches of a request in the append group, in the order of
requests; ``StagedProduce.settle`` answers when the group has been written. A request whose batches take long
to validate (``broker/produce/batch_validation``), or that has very many of them, waits in between and is
written by itself; one about hundreds of partitions is read and answered in slices too
(``scheduling/slow_lane``).

Transactional records are taken in a transaction that is open in their partition, or that its coordinator
vouches for; from version 12 on they open it (KIP-890): see ``broker/produce/transactional_produce``. Without
a transactional id they are TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

Producers that have sent more than their quota are answered at once, and have to pause (``broker/quotas``).

Differences: transactional records without a transactional id are refused by themselves, where Kafka refuses
their whole request; a partition that a request names twice gets both batches, where Kafka takes the second
alone; null records are answered, where Kafka's answer never comes; a batch whose size or magic cannot be is
refused by itself, where Kafka refuses its whole request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.access.authorization import OPEN, WRITE_TOPIC, Authorization, refusal
from tidelog.broker.coordination.transaction_verification import UNVERIFIED_OK, Verified
from tidelog.broker.endpoints import endpoints_of
from tidelog.broker.network.answer import (
    NO_ANSWER,
    NOT_YET,
    NoAnswer,
    NotAnswerable,
    NotYet,
    PromisedAnswer,
    StagedAnswer,
)
from tidelog.broker.partition_errors import OnOffline, error_code
from tidelog.broker.produce.batch_validation import (
    RequestValidation,
    Validations,
    ValidationThreads,
    takes_long,
    validate_now,
)
from tidelog.broker.produce.produce_wait import ProduceWait, WrittenBatch
from tidelog.broker.produce.transactional_produce import (
    NotVerifiedError,
    TransactionalRequests,
    answer_when_verified,
)
from tidelog.broker.quotas.client_quotas import UNLIMITED, ClientQuotas
from tidelog.broker.quotas.payer import Payer, payer_of
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, WireError
from tidelog.ids import Uuid
from tidelog.metadata.image import MetadataImage
from tidelog.metrics.request_errors import RequestErrors
from tidelog.records.batch import CODEC_MASK, FLAGS_AT, TRANSACTIONAL_BIT
from tidelog.records.compression import Codec
from tidelog.replication.append_group import AppendGroup
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.deadlines import Deadlines
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices, run_to_end
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.security.session import Session
from tidelog.storage.log.log_appender import AppendInfo, Judged
from tidelog.storage.log.validation import NoBatchError, RecordsRefusedError
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch_request import SLICE
from tidelog.wire.primitives import Endpoint
from tidelog.wire.produce import (
    ERROR_CODE_AT,
    PARTITION_AT,
    ParsedProduce,
    PartitionAnswer,
    PartitionResult,
    TopicRecords,
    encode_produce_in_slices,
    encode_produce_response,
    parse_produce_in_slices,
    parse_produce_request,
    parse_short_produce,
)

if TYPE_CHECKING:
    from tidelog.broker.coordination.coordinators import Coordinators
    from tidelog.broker.network.connection import Connection
    from tidelog.broker.network.inbox import KeptFrame

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
_NO_SINGLE_TOPIC: TopicRecords = None, None, []
_WRITE = Operation.WRITE
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
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
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

# What a client may well meet, and Kafka does not count as a failure either.
_NOT_FAILED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

_new_tuple = tuple.__new__

SlowBatch = tuple[int, Partition, memoryview]
Entry = tuple[int, Partition | None, AppendInfo | KafkaError]
Topic = tuple[str | None, Uuid | None, list[Entry]]
Answered = tuple[str | None, Uuid | None, list[PartitionAnswer]]
Denied = frozenset[str | Uuid | None]
_NOTHING_DENIED: Denied = frozenset()


class ProduceCall(NamedTuple):
    """One request, parsed; its records are views of ``frame``."""

    connection: Connection
    frame: memoryview
    pos: int
    version: int
    correlation_id: int
    request: ParsedProduce
    denied: Denied = _NOTHING_DENIED
    """The topics that the client may not write to."""

    def allowed_topics(self) -> list[TopicRecords]:
        """The others."""
        topics = self.request.topics
        if not self.denied:
            return topics
        return [
            (name, topic_id, partitions)
            for name, topic_id, partitions in topics
            if (name if topic_id is None else topic_id) not in self.denied
        ]


class ProduceServices(NamedTuple):
    """The parts of one broker that its produce requests need."""

    partitions: Partitions
    image: MetadataImage
    deadlines: Deadlines
    judging_threads: ValidationThreads
    lane: SlowLane
    on_offline: OnOffline
    find_coordinators: Callable[[], Coordinators]
    authorization: Authorization = OPEN
    quotas: ClientQuotas = UNLIMITED


class ProduceHandler:
    """Stages produce requests of one broker in its append group."""

    def __init__(self, services: ProduceServices, group: AppendGroup) -> None:
        self.services = services
        self.group = group
        self._staged = group.staged
        self._by_name = services.partitions.by_name
        self._by_id = services.partitions.by_id
        self._transactional: TransactionalRequests | None = None
        self._lane = services.lane
        self._guard = services.authorization if services.authorization.is_on else None
        self.quotas = services.quotas
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _transactions(self) -> TransactionalRequests:
        if self._transactional is None:
            self._transactional = TransactionalRequests(
                self.services.find_coordinators().verification, self._find
            )
        return self._transactional

    def handle_frame(
        self, connection: Connection, frame: memoryview, pos: int, version: int, correlation_id: int
    ) -> StagedAnswer | PromisedAnswer | NotYet:
        """Check and stage the batches of one request, or begin to."""
        request = parse_short_produce(frame, pos, version)
        if request is None:
            return self._handle_many_partitions(
                connection, connection.keep(frame), pos, version, correlation_id
            )
        if connection.has_unanswered and not self._takes_writes(request):
            return NOT_YET
        call = _new_tuple(
            ProduceCall, (connection, frame, pos, version, correlation_id, request, _NOTHING_DENIED)
        )
        transactional_id = request.transactional_id
        topics = request.topics
        verified: Verified | None = None
        if self._guard is not None:
            session = connection.session
            for name, topic_id, _ in topics:
                if session.decisions.get((WRITE_TOPIC, topic_id or name)):
                    continue
                if self._is_denied(self._guard, session, name, topic_id):
                    denied = call.denied | {name if topic_id is None else topic_id}
                    call = call._replace(denied=denied)
            if transactional_id is not None:
                refused = self._transaction_refused(self._guard, session, request)
                if refused is not None:
                    return self._refuse(call, refused)
        if transactional_id is not None:
            try:
                asked = self._transactions.verify(transactional_id, version, call.allowed_topics())
            except NotVerifiedError as refusal:
                return self._refuse(call, refusal)
            if not asked.done:
                call, release = self._keep(call)
                return answer_when_verified(
                    asked,
                    lambda known: self._validate_in_thread(call, self._slow_batches(call), known, release),
                    release,
                )
            verified = asked.result()
        name, topic_id, partitions = topics[0] if len(topics) == 1 else _NO_SINGLE_TOPIC
        if len(partitions) == 1:
            # What nearly every request is: one batch, and mostly one that is judged as it is staged.
            ((index, records),) = partitions
            if call.denied or not takes_long(self._find(name, topic_id, index), records):
                return self._stage(call, verified, None)
        elif len(frame) > _LARGE_FRAME_BYTES or sum(len(each) for _, _, each in topics) > _MANY_BATCHES:
            call, release = self._keep(call)
            return self._validate_in_thread(call, self._slow_batches(call), verified, release)
        slow = self._slow_batches(call)
        if not slow:
            return self._stage(call, verified, None)
        judging = RequestValidation(slow)
        if validate_now(judging):
            return self._stage(call, verified, judging.judged)
        call, release = self._keep(call)
        return self._validate_in_thread(call, self._slow_batches(call), verified, release)

    def _is_denied(
        self, guard: Authorization, session: Session, name: str | None, topic_id: Uuid | None
    ) -> bool:
        """Whether a client may not write to a topic."""
        if topic_id is None:
            return name is not None and not guard.allows_topic(session, _WRITE, name)
        found = self.services.partitions.topic_name(topic_id)
        # What does not exist is refused for that.
        return found is not None and not guard.allows_writing_to(session, found, topic_id)

    def _denied_in_slices(
        self, guard: Authorization, session: Session, topics: Sequence[TopicRecords]
    ) -> Slices[Denied]:
        """The topics that a client may not write to."""
        denied: set[str | Uuid | None] = set()
        for number, (name, topic_id, _) in enumerate(topics, 1):
            if self._is_denied(guard, session, name, topic_id):
                denied.add(name if topic_id is None else topic_id)
            if not number % SLICE:
                yield
        return frozenset(denied)

    def _transaction_refused(
        self, guard: Authorization, session: Session, request: ParsedProduce
    ) -> KafkaError | None:
        """What refuses the whole of a request with transactional records."""
        transactional_id = request.transactional_id
        kind = ResourceType.TRANSACTIONAL_ID
        assert transactional_id is not None
        if not any(
            _is_transactional(records) for _, _, partitions in request.topics for _, records in partitions
        ):
            return None
        if guard.allows(session, _WRITE, kind, transactional_id):
            return None
        return refusal(session, _WRITE, kind, transactional_id)

    def _takes_writes(self, request: ParsedProduce) -> bool:
        """Whether all partitions of a request take records just now."""
        for name, topic_id, partitions in request.topics:
            for index, _ in partitions:
                partition = self._find(name, topic_id, index)
                if partition is None or not partition.takes_writes(request.acks):
                    return False
        return True

    def _takes_writes_in_slices(self, request: ParsedProduce) -> Slices[bool]:
        """The same, slowly."""
        for name, topic_id, partitions in request.topics:
            for start in range(0, len(partitions), SLICE):
                some = [(name, topic_id, partitions[start : start + SLICE])]
                if not self._takes_writes(request._replace(topics=some)):
                    return False
                yield
        return True

    def _keep(self, call: ProduceCall) -> tuple[ProduceCall, Callable[[], None]]:
        """The same request in memory of its own, and what gives that back."""
        frame = call.connection.keep(call.frame)
        request = parse_produce_request(frame.view, call.pos, call.version)
        return call._replace(frame=frame.view, request=request), frame.release

    def _handle_many_partitions(
        self, connection: Connection, frame: KeptFrame, pos: int, version: int, correlation_id: int
    ) -> PromisedAnswer:
        """Read and carry out a request about so many partitions that even reading it takes a while."""
        promise: PromisedAnswer = Promise()

        async def take() -> None:
            try:
                promise.follow(await self._read_wide(connection, frame, pos, version, correlation_id))
            except WireError as error:
                frame.release()
                promise.fail(NotAnswerable(str(error)))
            except Exception:
                logger.exception("A wide produce request of %s failed", connection)
                frame.release()
                promise.fail(NotAnswerable("its produce request could not be handled"))

        self._begin(take(), self._timed_payer(connection, frame.view))
        return promise

    async def _read_wide(
        self, connection: Connection, frame: KeptFrame, pos: int, version: int, correlation_id: int
    ) -> bytes | NoAnswer | PromisedAnswer:
        run = self._lane.run
        request = await run(parse_produce_in_slices(frame.view, pos, version))
        call = ProduceCall(connection, frame.view, pos, version, correlation_id, request)
        transactional_id = request.transactional_id
        verified: Verified | None = None
        if self._guard is not None:
            denied = await run(self._denied_in_slices(self._guard, connection.session, request.topics))
            call = call._replace(denied=denied)
        if transactional_id is not None:
            refused: KafkaError | None = None
            if self._guard is not None:
                refused = self._transaction_refused(self._guard, connection.session, request)
            if refused is None:
                allowed = call.allowed_topics()
                verifying = self._transactions.verify_in_slices(transactional_id, version, allowed)
                try:
                    verified = await (await run(verifying))
                except NotVerifiedError as refusal:
                    refused = refusal
            if refused is not None:
                outcome = await run(self._refuse(call, refused).settle_in_slices())
                frame.release()
                return outcome
        return self._validate_in_thread(call, await run(self._slow_in_slices(call)), verified, frame.release)

    def _timed_payer(self, connection: Connection, frame: memoryview) -> Payer | None:
        """Who pays for the time that a request takes, if that counts."""
        return None if self.quotas.request is None else payer_of(connection, frame)

    def _begin(self, work: Coroutine[Any, Any, None], payer: Payer | None) -> None:
        task = asyncio.get_running_loop().create_task(self.quotas.timed(work, payer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def answer_many_partitions(self, encoding: Slices[bytes], payer: Payer | None) -> PromisedAnswer:
        """The answer to a request about so many partitions that writing it takes a while."""
        promise: PromisedAnswer = Promise()

        async def write() -> None:
            try:
                promise.resolve(await self._lane.run(encoding))
            except Exception:
                logger.exception("Unexpected error in the answer to a wide produce request")
                promise.fail(NotAnswerable("its produce request could not be answered"))

        self._begin(write(), payer)
        return promise

    def _slow_batches(self, call: ProduceCall) -> list[SlowBatch]:
        """The batches that take long to judge, by their number in the request."""
        slow: list[SlowBatch] = []
        number = 0
        for topic in call.request.topics:
            name, topic_id, partitions = topic
            if (name if topic_id is None else topic_id) not in call.denied:
                self._note_slow(slow, number, topic)
            number += len(partitions)
        return slow

    def _slow_in_slices(self, call: ProduceCall) -> Slices[list[SlowBatch]]:
        """The same, slowly."""
        slow: list[SlowBatch] = []
        number = seen = 0
        for name, topic_id, partitions in call.request.topics:
            is_denied = (name if topic_id is None else topic_id) in call.denied
            for start in range(0, len(partitions), SLICE):
                some = partitions[start : start + SLICE]
                if not is_denied:
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

    def _validate_in_thread(
        self,
        call: ProduceCall,
        slow: list[SlowBatch],
        verified: Verified | None,
        release: Callable[[], None],
    ) -> PromisedAnswer:
        """Judge in a thread what takes long, then stage, write and answer the request by itself."""
        promise: PromisedAnswer = Promise()
        connection = call.connection
        threads = self.services.judging_threads
        wants_answer = call.request.acks != 0
        payer = self._timed_payer(connection, call.frame)

        def is_wanted() -> bool:
            # A client that wants no answer may go as soon as it has sent.
            return not connection.closed or (not wants_answer and threads.are_few)

        judging = RequestValidation(slow, is_wanted)

        def judged(failure: Exception | None) -> None:
            if judging.given_up:
                release()
                return
            if failure is not None:
                logger.error("Judging a request of %s failed", call.connection, exc_info=failure)
                release()
                promise.fail(NotAnswerable("its produce request could not be handled"))
                return
            self._begin(self._finish(call, verified, judging.judged, release, promise), payer)

        if slow:
            threads.judge(judging, judged)
        else:
            judged(None)
        return promise

    async def _finish(
        self,
        call: ProduceCall,
        verified: Verified | None,
        judged: Validations,
        release: Callable[[], None],
        promise: PromisedAnswer,
    ) -> None:
        # A group of its own: in that of the connections somebody else's batches may be staged.
        apart = ProduceHandler(self.services, AppendGroup(self.services.on_offline))
        if not await self._lane.run(self._takes_writes_in_slices(call.request)):
            # What would be refused waits for its turn: see ``broker/network/answer``.
            await call.connection.turn_of(promise)
        try:
            staged = await self._lane.run(apart.stage_in_slices(call, verified, judged))
            outcome = await self._lane.run(staged.settle_in_slices())
        except Exception:
            logger.exception("A produce request of %s that was judged apart failed", call.connection)
            promise.fail(NotAnswerable("its produce request could not be handled"))
        else:
            promise.follow(outcome)
        finally:
            release()

    def stage_in_slices(
        self, call: ProduceCall, verified: Verified | None, judged: Validations
    ) -> Slices[StagedProduce]:
        """Stage and write the batches of a request one by one."""
        topics: list[Topic] = []
        refused = False
        number = -1
        for name, topic_id, partitions in call.request.topics:
            entries: list[Entry] = []
            for index, records in partitions:
                number += 1
                _, partition, outcome = self._stage_one(
                    call, name, topic_id, index, records, verified, judged.get(number)
                )
                self.group.commit()
                if partition in self.group.failed:
                    outcome = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
                refused = refused or isinstance(outcome, KafkaError)
                entries.append((index, partition, outcome))
                yield
            if entries:
                topics.append((name, topic_id, entries))
        self.group.failed.clear()
        return StagedProduce(self, call, topics, refused)

    def _stage(
        self, call: ProduceCall, verified: Verified | None, judged: Validations | None
    ) -> StagedAnswer:
        """Stage all batches of a request; the connection has them written."""
        request = call.request
        acks = request.acks
        usual = call.version >= _ZSTD_SINCE and -1 <= acks <= 1 and not call.denied
        staged: list[Topic] = []
        refused = False
        number = -1
        for name, topic_id, partitions in request.topics:
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
                    or len(records) <= FLAGS_AT
                    or records[FLAGS_AT] & TRANSACTIONAL_BIT
                ):
                    known = None if judged is None else judged.get(number)
                    entry = self._stage_one(call, name, topic_id, index, records, verified, known)
                    _, _, outcome = entry
                    refused = refused or isinstance(outcome, KafkaError)
                    entries.append(entry)
                    continue
                partition.counts.produce_requests += 1
                try:
                    entries.append((index, partition, partition.stage(records, acks)))
                    self._staged[partition] = None
                except Exception as error:
                    refused = True
                    told = self._refusal(partition, name, index, error, len(records))
                    entries.append((index, partition, told))
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
        partition = self._find(name, topic_id, index)
        try:
            if (name if topic_id is None else topic_id) in call.denied:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            _refuse_transactions(records, call.request.transactional_id)
            partition, records = self._examine(call, partition, name, topic_id, index, records, verified)
            partition.counts.produce_requests += 1
            info = partition.stage(records, call.request.acks, judged=judged)
        except Exception as error:
            size = 0 if records is None else len(records)
            return index, partition, self._refusal(partition, name, index, error, size)
        self._staged[partition] = None
        return index, partition, info

    def _refuse(self, call: ProduceCall, refusal: KafkaError) -> StagedProduce:
        """Nothing of a request is taken."""
        refused: list[Topic] = [
            (name, topic_id, [(index, None, refusal) for index, _ in partitions])
            for name, topic_id, partitions in call.request.topics
        ]
        return StagedProduce(self, call, refused, True)

    def _find(self, name: str | None, topic_id: Uuid | None, index: int) -> Partition | None:
        return self._by_name.get((name, index)) if topic_id is None else self._by_id.get((topic_id, index))

    def _refusal(
        self, partition: Partition | None, topic: str | None, index: int, error: Exception, size: int
    ) -> KafkaError:
        """What to tell the client about a batch that was not staged."""
        if partition is not None and not (isinstance(error, KafkaError) and error.code in _NOT_FAILED):
            partition.counts.failed_produce_requests += 1
        if isinstance(error, KafkaError):
            if partition is not None and error.code in _TOO_LARGE:
                partition.counts.bytes_rejected += size
            return error.without_history()
        if isinstance(error, LogDirOfflineError) and partition is not None:
            self.group.lose(partition, error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        where = partition.topic_partition if partition is not None else f"{topic}-{index}"
        return KafkaError(error_code(self.services.on_offline, error, "appending to", where))

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
        partitions = self.services.partitions
        if partition is None:
            partition = (
                partitions.get(name, index) if topic_id is None else partitions.get_by_id(topic_id, index)
            )
        if records is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"Produce requests with version {version} must have at least one record batch per partition",
            )
        if version < _ZSTD_SINCE and len(records) > FLAGS_AT and records[FLAGS_AT] & CODEC_MASK == Codec.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce requests with version {version} are not allowed to use ZStandard compression",
            )
        self._transactions.check(partition, records, verified or UNVERIFIED_OK, version)
        if not -1 <= call.request.acks <= 1:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if partition.is_internal and not _is_admin_client(call.frame):
            topic = partition.topic_partition.topic
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
        return partition, records


class StagedProduce(StagedAnswer):
    """A produce request whose batches are staged."""

    __slots__ = ("_acks", "_call", "_handler", "_payer", "_size", "_topics")

    def __init__(
        self, handler: ProduceHandler, call: ProduceCall, topics: list[Topic], refused: bool
    ) -> None:
        self.refused = refused
        self._handler = handler
        self._call = call
        self._acks = call.request.acks
        self._topics = topics

    def settle(self) -> bytes | NoAnswer | PromisedAnswer:
        """Answer, now that the group is written, or once it is synced and replicated as it has to be."""
        acks = self._acks
        call = self._call
        quotas = self._handler.quotas
        payer: Payer | None = None
        if quotas.request is not None:
            if quotas.request.is_mixed:
                quotas.request.turn_to(call.connection, call.frame)
            payer = quotas.request.payer
        failed = self._handler.group.failed
        topics = self._topics
        if acks and not failed and len(topics) == 1:
            ((name, topic_id, entries),) = topics
            if len(entries) == 1:
                # What nearly every request is: one batch for one partition, and all went well.
                ((index, partition, info),) = entries
                if (
                    type(info) is AppendInfo
                    and (
                        partition.log.high_watermark > info.last_offset  # type: ignore[union-attr]
                        or (acks == 1 and not partition.flushing)  # type: ignore[union-attr]
                    )
                    and (
                        not quotas.on_produce
                        # If it may have to pause, the long way finds out for how long.
                        or quotas.produced_within(
                            payer or payer_of(call.connection, call.frame), len(call.frame)
                        )
                    )
                ):
                    append_time_ms, log_start = info.log_append_time_ms, info.log_start_offset
                    result = index, 0, info.first_offset, append_time_ms, log_start, (), None, None
                    return encode_produce_response(
                        call.version, call.correlation_id, ((name, topic_id, (result,)),)
                    )
        return run_to_end(self.settle_in_slices())

    def settle_in_slices(self) -> Slices[bytes | NoAnswer | PromisedAnswer]:
        """The same, slowly, for a request that was written by itself."""
        acks = self._acks
        call = self._call
        failed = self._handler.group.failed
        self._payer: Payer | None = None
        if self._handler.quotas.on_produce:
            # By the time of the answer the frame may be gone.
            self._payer = payer_of(call.connection, call.frame)
            self._size = len(call.frame)
        answers: list[Answered] = []
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
                        deadlines = self._handler.services.deadlines
                        wait = ProduceWait(acks, lambda: self._encode_late(answers), deadlines)
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
            self._pause()
            if not self.refused:
                self._errors.count_unanswered("Produce")
                return NO_ANSWER
            self._errors.count("Produce", (yield from _codes(answers)))
            return self._close()
        if wait is not None:
            return wait.start(call.request.timeout_ms, refused=self.refused)
        return (yield from self._encode_in_slices(answers))

    def _pause(self) -> int:
        """Charge the producer; for how long it has to pause, which begins now."""
        if self._payer is None:
            return 0
        pause_ms = self._handler.quotas.produced(self._payer, self._size, self._acks)
        self._call.connection.throttle(pause_ms, API)
        return pause_ms

    def _encode_late(self, answers: list[Answered]) -> bytes | PromisedAnswer:
        """The answer, when others have made it due: followers, or whoever syncs."""
        request_time = self._handler.quotas.request
        if request_time is None or self._payer is None:
            return self._encode(answers)
        return request_time.charge(self._payer, lambda: self._encode(answers))

    def _encode(self, answers: list[Answered]) -> bytes | PromisedAnswer:
        """The answer, at once unless it is about very many partitions."""
        if sum(len(results) for _, _, results in answers) > SLICE:
            return self._handler.answer_many_partitions(self._encode_in_slices(answers), self._payer)
        leaders: set[int] = set()
        for answered in answers:
            self._point_to_leaders(answered, 0, leaders)
        if self.refused:
            self._errors.count_answer("Produce", run_to_end(_codes(answers)))
        call = self._call
        endpoints = self._endpoints(leaders) if leaders else ()
        return encode_produce_response(call.version, call.correlation_id, answers, self._pause(), endpoints)

    def _encode_in_slices(self, answers: list[Answered]) -> Slices[bytes]:
        leaders: set[int] = set()
        for answered in answers:
            _, _, results = answered
            for start in range(0, len(results), SLICE):
                self._point_to_leaders(answered, start, leaders)
                yield
        if self.refused:
            self._errors.count_answer("Produce", (yield from _codes(answers)))
        call = self._call
        endpoints = self._endpoints(leaders) if leaders else ()
        return (
            yield from encode_produce_in_slices(
                call.version, call.correlation_id, answers, self._pause(), endpoints
            )
        )

    def _point_to_leaders(self, answered: Answered, start: int, leaders: set[int]) -> None:
        """Say in a slice of results who leads what this broker does not (KIP-951); adds to ``leaders``."""
        name, topic_id, results = answered
        for slot in range(start, min(start + SLICE, len(results))):
            result = results[slot]
            code = result[ERROR_CODE_AT]
            if not code:
                continue
            # It may have been refused while it waited.
            self.refused = True
            if code == _NOT_LEADER:
                key = name if topic_id is None else topic_id, result[PARTITION_AT]
                leader = self._handler.services.partitions.current_leader(key)
                if leader is not None:
                    results[slot] = PartitionResult(*result)._replace(current_leader=leader)
                    leader_id, _ = leader
                    leaders.add(leader_id)

    @property
    def _errors(self) -> RequestErrors:
        return self._handler.services.partitions.counts.errors

    def _endpoints(self, leaders: set[int]) -> Sequence[Endpoint]:
        """The addresses of the leaders that an answer points to."""
        return endpoints_of(self._handler.services.image, leaders, self._call.connection.listener)

    def _refused(
        self, index: int, partition: Partition | None, error: AppendInfo | KafkaError
    ) -> PartitionAnswer:
        if not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        code = error.code
        log_start = -1
        if partition is not None and code not in _WITHOUT_LOG_START:
            log_start = partition.log.log_start_offset
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
        return PartitionResult(
            index,
            code,
            base_offset=-1,
            log_start_offset=log_start,
            record_errors=record_errors,
            error_message=message,
        )

    def _close(self) -> PromisedAnswer:
        """With acks=0 there is no answer to put an error in; a closed connection is the answer."""
        refused = [
            f"{name or topic_id!r}-{index}: {error if isinstance(error, KafkaError) else 'not written'}"
            for name, topic_id, index, error in islice(self._refusals(), _NAMED_REFUSALS + 1)
        ]
        if len(refused) > _NAMED_REFUSALS:
            refused[-1] = "and others"
        promise: PromisedAnswer = Promise()
        promise.fail(NotAnswerable(f"a produce request with acks=0 failed ({', '.join(refused)})"))
        return promise

    def _refusals(self) -> Iterator[tuple[str | None, Uuid | None, int, AppendInfo | KafkaError]]:
        for name, topic_id, entries in self._topics:
            for index, partition, error in entries:
                if isinstance(error, KafkaError) or partition in self._handler.group.failed:
                    yield name, topic_id, index, error


def _codes(answers: list[Answered]) -> Slices[Counter[int]]:
    """How often each code is among the results."""
    codes: Counter[int] = Counter()
    for _, _, results in answers:
        for start in range(0, len(results), SLICE):
            codes.update(result[ERROR_CODE_AT] for result in results[start : start + SLICE])
            yield
    return codes


def _is_transactional(records: memoryview | None) -> bool:
    return records is not None and len(records) > FLAGS_AT and bool(records[FLAGS_AT] & TRANSACTIONAL_BIT)


def _refuse_transactions(records: memoryview | None, transactional_id: str | None) -> None:
    if transactional_id is None and _is_transactional(records):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Transactional records came without a transactional id",
        )


def _is_admin_client(frame: memoryview) -> bool:
    length = int.from_bytes(frame[8:10], "big", signed=True)
    return length > 0 and frame[10 : 10 + length] == _ADMIN_CLIENT_ID
