"""One member of a classic group on the wire: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and their errors.

Owns the member's state and generation and the wish to rejoin. Knows nothing of listeners and commits:
``classic_membership`` calls ``join`` (in a task) and ``leave``, and acts on ``rejoin_needed``. Invariant:
heartbeats run exactly while the state is COMPLETING_REBALANCE or STABLE.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from tidelog.client._network.retry import Backoff, Deadline
from tidelog.client.errors import error_from, is_retriable
from tidelog.client.group._classic.consumer_protocol import PROTOCOL_TYPE
from tidelog.client.group._classic.generation import NO_GENERATION, Generation, MemberState
from tidelog.client.group._classic.heartbeats import Heartbeats
from tidelog.client.group._coordinator_link import CoordinatorLink
from tidelog.client.group._metrics import GroupMetrics
from tidelog.client.group.errors import fenced
from tidelog.client.options import ClientConfig
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

logger = logging.getLogger(__name__)

THROWN_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_AT_ONCE = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})
_AT_ONCE_LIMIT = 3
_JOIN_LAPSE_MS = 5000
_REASON_LIMIT = 255
_LEAVING_MEMBERS_SINCE = 3


class Rebalance(Protocol):
    """What a member brings to a rebalance."""

    def subscriptions(self) -> Mapping[str, bytes]:
        """The subscription for every assignor, by name, in the order of preference."""

    async def lead(self, response: JoinGroupResponse) -> Mapping[str, bytes]:
        """The assignments of all members: this one has been made the leader."""


class ClassicMember:
    """A place in a classic group."""

    def __init__(
        self,
        config: ClientConfig,
        link: CoordinatorLink,
        rebalance: Rebalance,
        metrics: GroupMetrics,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` is called when the application must poll for the membership to go on."""
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.rejoin_needed = True
        self.is_leader = False
        self.heartbeats = Heartbeats(config, link, self, metrics, wake)
        self._config = config
        self._link = link
        self._rebalance = rebalance
        self._metrics = metrics
        self._wake = wake
        self._rejoin_reason = ""
        self._failure: TidelogError | None = None
        self._instance_id = config.optional_str("group.instance.id")
        self._rebalance_timeout_ms = config.int("max.poll.interval.ms")

    def raise_failure(self) -> None:
        """Raise what the background tasks cannot mend.

        Once, but for a name that another consumer has taken: who joined again would take it back, and so on.
        """
        failure = self._failure
        if not self.is_fenced:
            self._failure = None
        if failure is not None:
            raise failure

    @property
    def is_fenced(self) -> bool:
        """Whether another consumer has this one's ``group.instance.id``; until it leaves."""
        return isinstance(self._failure, KafkaError) and self._failure.code is ErrorCode.FENCED_INSTANCE_ID

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def request_rejoin(self, reason: str) -> None:
        """The group must rebalance, or does so already."""
        if not self.rejoin_needed:
            logger.info("group %s has to be joined again: %s", self._link.group_id, reason)
        self.rejoin_needed = True
        self._rejoin_reason = reason
        self._wake()

    def reset(self, reason: str, *, keep_member_id: bool = False) -> None:
        """This is no member any more; what it owned may be others'."""
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id) if keep_member_id else NO_GENERATION
        self.heartbeats.stop()
        self.request_rejoin(reason)

    # Joining

    async def join(self) -> bytes:
        """Take part in a rebalance to its end; this member's assignment.

        Tries again after errors that pass. UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION are raised after the
        generation was reset: partitions have to be given up as lost before the next attempt.
        """
        backoff = Backoff(self._config.int("retry.backoff.ms"), self._config.int("retry.backoff.max.ms"))
        at_once = _AT_ONCE_LIMIT
        while True:
            try:
                return await self._join_once()
            except TidelogError as error:
                logger.debug("joining group %s: %s", self._link.group_id, error)
                self._metrics.failed_rebalances += 1
                foreseen = isinstance(error, KafkaError) and error.code in _AT_ONCE
                if not foreseen:
                    self._link.join_failed(error)
                    if not is_retriable(error):
                        raise
                at_once -= foreseen
                if foreseen and at_once >= 0:
                    continue
            await asyncio.sleep(backoff.next_ms() / 1000)

    async def _join_once(self) -> bytes:
        self.state = MemberState.PREPARING_REBALANCE
        self.heartbeats.stop()
        metrics = self._metrics
        metrics.rebalance_began()
        sent = self.generation
        waits_ms = max(self._config.int("request.timeout.ms"), self._rebalance_timeout_ms + _JOIN_LAPSE_MS)
        asking = self._link.ask(
            self._join_request(sent), JoinGroupResponse, Deadline(waits_ms), waits_ms=waits_ms
        )
        response = await metrics.timed(metrics.join_ms, asking, lambda answer: not answer.error_code)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(member_id=response.member_id)
            self._rejoin_reason = f"need to re-join with the given member-id: {response.member_id}"
        self._check(response.error_code, sent, "JoinGroup")
        self._check_protocol_type(response.protocol_type)
        if self.generation != sent or self.state is not MemberState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "the member was reset while it joined")
        self.generation = Generation(response.generation_id, response.member_id, response.protocol_name)
        self.state = MemberState.COMPLETING_REBALANCE
        self.heartbeats.start()
        self.is_leader = response.leader == response.member_id
        logger.info(
            "joined group %s as %s, generation %d%s",
            self._link.group_id,
            response.member_id,
            response.generation_id,
            ", leading it" if self.is_leader else "",
        )
        assignments = await self._rebalance.lead(response) if self.is_leader else {}
        return await self._sync(assignments)

    async def _sync(self, assignments: Mapping[str, bytes]) -> bytes:
        sent = self.generation
        request = SyncGroupRequest(
            group_id=self._link.group_id,
            generation_id=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=sent.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )
        waits_ms = self._config.int("request.timeout.ms")
        asking = self._link.ask(request, SyncGroupResponse, Deadline(waits_ms), waits_ms=waits_ms)
        metrics = self._metrics
        response = await metrics.timed(metrics.sync_ms, asking, lambda answer: not answer.error_code)
        self._check(response.error_code, sent, "SyncGroup")
        self._check_protocol_type(response.protocol_type)
        if response.protocol_name is not None and response.protocol_name != sent.protocol:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the coordinator joined with {sent.protocol} and synchronized with {response.protocol_name}",
            )
        if self.generation != sent or self.state is not MemberState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "the member was reset while it synchronized")
        self.state = MemberState.STABLE
        self.rejoin_needed = False
        self._rejoin_reason = ""
        self._link.joined()
        metrics.rebalance_ended()
        return response.assignment

    def _join_request(self, generation: Generation) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._link.group_id,
            session_timeout_ms=self._config.int("session.timeout.ms"),
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=generation.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self._rebalance.subscriptions().items()
            ],
            reason=self._rejoin_reason[:_REASON_LIMIT],
        )

    def _check(self, code: int, sent: Generation, api: str) -> None:
        """Act on the error of an answer, if any, and raise it."""
        self._link.note(code)
        known = ErrorCode(code)
        if known in THROWN_OUT and self.generation == sent:
            keep = known is ErrorCode.ILLEGAL_GENERATION
            self.reset(f"{known.name} from {api}", keep_member_id=keep)
        if known is ErrorCode.FENCED_INSTANCE_ID:
            self._failure = fenced(self._link.group_id, self._instance_id)
            raise self._failure
        error = error_from(code, None, f"{api} of group {self._link.group_id!r}")
        if error is not None:
            raise error

    def _check_protocol_type(self, protocol_type: str | None) -> None:
        if protocol_type is not None and protocol_type != PROTOCOL_TYPE:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self._link.group_id!r} is one of {protocol_type} members, not of consumers: "
                "use another group.id",
            )

    # Leaving

    async def leave(self, reason: str, deadline: Deadline) -> None:
        """Say good-bye, unless this is a static member: those may come back."""
        generation, state = self.generation, self.state
        self.reset(reason)
        self._link.joined()
        self._failure = None
        is_member = state is not MemberState.UNJOINED and bool(generation.member_id)
        if not is_member or self._instance_id is not None or self._link.node is None:
            return
        identity = MemberIdentity(member_id=generation.member_id, reason=reason[:_REASON_LIMIT])

        def build(version: int) -> LeaveGroupRequest:
            if version < _LEAVING_MEMBERS_SINCE:
                return LeaveGroupRequest(group_id=self._link.group_id, member_id=generation.member_id)
            return LeaveGroupRequest(group_id=self._link.group_id, members=[identity])

        try:
            # A JoinGroup that was given up may still hold the coordinator's connection.
            beside = state is MemberState.PREPARING_REBALANCE
            response = await self._link.ask(build, LeaveGroupResponse, deadline, beside=beside)
        except TidelogError as error:
            logger.warning("group %s could not be left: %s", self._link.group_id, error)
            return
        codes = [response.error_code, *(member.error_code for member in response.members)]
        for code in filter(None, codes):
            logger.info("leaving group %s: %s", self._link.group_id, ErrorCode(code).name)

    # Heartbeats

    def heartbeat_answered(self, code: ErrorCode, sent: Generation) -> bool:
        if code is ErrorCode.NONE:
            return True
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is MemberState.STABLE:
                self.request_rejoin("group is already rebalancing")
            return True
        if code in THROWN_OUT or code is ErrorCode.FENCED_INSTANCE_ID:
            if self.generation != sent:
                return True
            self.reset(f"{code.name} from Heartbeat", keep_member_id=code is ErrorCode.ILLEGAL_GENERATION)
            if code is ErrorCode.FENCED_INSTANCE_ID:
                self._failure = fenced(self._link.group_id, self._instance_id)
            return False
        error = error_from(code, None, f"Heartbeat of group {self._link.group_id!r}")
        if error is not None and not is_retriable(error):
            self._fail(error)
        return False

    def heartbeat_failed(self, error: TidelogError) -> None:
        if not is_retriable(error):
            self._fail(error)

    async def poll_overdue(self) -> None:
        logger.warning(
            "leaving group %s: poll was not called for max.poll.interval.ms=%d; process records faster, "
            "lower max.poll.records or raise max.poll.interval.ms",
            self._link.group_id,
            self._rebalance_timeout_ms,
        )
        deadline = Deadline(self._config.int("request.timeout.ms"))
        await self.leave("consumer poll timeout has expired.", deadline)

    def _fail(self, error: TidelogError) -> None:
        self._failure = error
        self._wake()
