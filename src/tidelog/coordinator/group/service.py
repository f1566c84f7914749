"""The group coordinator of one broker: finds a group's shard and runs commands on it.

Handlers call the methods named after their request, or ``write`` and ``read`` with what is to be done in the
shard. What needs no shard to be refused is refused here. What the log refuses is turned into what clients of
a coordinator understand, as Kafka does it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeVar

from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.group.group import Caller
from tidelog.coordinator.group.groups import GroupSupport
from tidelog.coordinator.group.shard import SCHEMAS, GroupShard
from tidelog.coordinator.log import partition_for, told_error
from tidelog.coordinator.runtime import Producer, Result, Runtime
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, Uuid, random_uuid
from tidelog.metadata.group_configs import GroupConfigs
from tidelog.metadata.image import MetadataImage
from tidelog.records.compression import Codec
from tidelog.scheduling.promise import Promise, gather
from tidelog.scheduling.slices import Slices
from tidelog.scheduling.timers import Timers
from tidelog.wire.messages.delete_groups import DeletableGroupResult
from tidelog.wire.messages.describe_groups import DescribedGroup
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.list_groups import ListedGroup
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

R = TypeVar("R")

_PROTOCOL_NAMED_SINCE = 5
_LEAVE_BATCHES_SINCE = 3


class GroupCoordinator:
    """Everything that has a ``group.id``."""

    TOPIC = CONSUMER_OFFSETS_TOPIC

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        image: MetadataImage,
        timers: Timers,
        *,
        new_member_uuid: Callable[[], Uuid] = random_uuid,
    ) -> None:
        self.config = config
        self.image = image
        self.support = GroupSupport(config, GroupConfigs(image, config), image, new_member_uuid)
        self.runtime: Runtime[GroupShard] = Runtime(
            self.TOPIC,
            SCHEMAS,
            lambda context: GroupShard(context, self.support),
            clock=clock,
            timers=timers,
            write_timeout_ms=config.int("offsets.commit.timeout.ms"),
            codec=Codec(config.int("offsets.topic.compression.codec")),
        )

    @property
    def partition_count(self) -> int:
        """How many partitions ``__consumer_offsets`` has, or will have."""
        topic = self.image.topics.get(self.TOPIC)
        return topic.partition_count if topic else self.config.int("offsets.topic.num.partitions")

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that a group belongs to."""
        return _partition_for(group_id, self.partition_count)

    def write(
        self,
        group_id: str,
        command: Callable[[GroupShard], Result[R]],
        producer: Producer | None = None,
    ) -> Promise[R]:
        """Run a command on the group's shard, as part of a producer's transaction if there is one."""
        partition = self.partition_for(group_id)
        if producer is None:
            reply = self.runtime.write(partition, command)
        else:
            reply = self.runtime.write(partition, command, producer)
        return reply if reply.done and reply.error is None else reply.recover(_tell)

    def read(self, group_id: str, query: Callable[[GroupShard], R]) -> Promise[R]:
        """Ask the group's shard."""
        reply = self.runtime.read(self.partition_for(group_id), query)
        return reply if reply.done and reply.error is None else reply.recover(_tell)

    def read_in_slices(self, group_id: str, query: Callable[[GroupShard], Slices[R]]) -> Slices[Promise[R]]:
        """Ask the group's shard what takes long."""
        reply = yield from self.runtime.read_in_slices(self.partition_for(group_id), query)
        return reply if reply.done and reply.error is None else reply.recover(_tell)

    def read_each(
        self,
        group_ids: Sequence[str],
        find: Callable[[GroupShard, str], R],
        refuse: Callable[[str, KafkaError], R],
    ) -> Slices[Promise[list[R]]]:
        """Ask each group's shard for that group; a refusal is the answer for its group."""
        return self.runtime.read_each(
            group_ids, self.partition_for, find, lambda group_id, error: refuse(group_id, told_error(error))
        )

    def read_all(self, query: Callable[[GroupShard], Slices[list[R]]]) -> Slices[Promise[list[R]]]:
        """Ask every shard that this broker has and put the answers together; none may be loading."""

        def nothing(error: Exception) -> list[R]:
            if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_COORDINATOR:
                return []
            return _tell(error)

        held = [index for index in range(self.partition_count) if self.runtime.epoch_of(index) is not None]
        replies = []
        for index in held:
            reply = yield from self.runtime.read_in_slices(index, query)
            replies.append(reply.recover(nothing))
            yield
        return _concatenated(replies)

    # The classic protocol

    def join(self, caller: Caller, request: JoinGroupRequest) -> Promise[JoinGroupResponse]:
        """JoinGroup."""
        lowest, highest = (self.config.int(f"group.{end}.session.timeout.ms") for end in ("min", "max"))
        if not request.group_id:
            refused = ErrorCode.INVALID_GROUP_ID
        elif not lowest <= request.session_timeout_ms <= highest:
            refused = ErrorCode.INVALID_SESSION_TIMEOUT
        else:
            if caller.api_version == 0:
                # It has no rebalance timeout: as long as a session, as it was before there were two.
                request.rebalance_timeout_ms = request.session_timeout_ms
            return self.write(request.group_id, lambda shard: shard.join(caller, request))
        return Promise.of(
            JoinGroupResponse(error_code=refused, member_id=request.member_id, protocol_name=None)
        )

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Promise[SyncGroupResponse]:
        """SyncGroup; what it is about has to be named since version 5 (KIP-559)."""
        unnamed = request.protocol_type is None or request.protocol_name is None
        if unnamed and caller.api_version >= _PROTOCOL_NAMED_SINCE:
            return Promise.of(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if not request.group_id:
            return Promise.of(SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return self.write(request.group_id, lambda shard: shard.sync(caller, request))

    def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> Promise[HeartbeatResponse]:
        """Heartbeat; all is well as long as the group is being loaded."""
        if not request.group_id:
            return Promise.of(HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        reply = self.write(request.group_id, lambda shard: shard.heartbeat(caller, request))
        return reply.recover(_beat_while_loading) if reply.error is not None else reply

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Promise[LeaveGroupResponse]:
        """LeaveGroup; before version 3 its one member stands beside the list."""
        if not request.group_id:
            return Promise.of(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        if caller.api_version < _LEAVE_BATCHES_SINCE:
            request.members = [MemberIdentity(member_id=request.member_id)]
        return self.write(request.group_id, lambda shard: shard.leave(caller, request))

    # Groups of any type

    def list_groups(
        self,
        states: Collection[str],
        types: Collection[str],
        is_visible: Callable[[str], bool] = lambda group_id: True,
    ) -> Slices[Promise[list[ListedGroup]]]:
        """ListGroups, over all shards."""
        return self.read_all(lambda shard: shard.list_groups(states, types, is_visible))

    def describe_groups(
        self,
        group_ids: Sequence[str],
        api_version: int,
        authorized_operations: Callable[[str], int] | None = None,
    ) -> Slices[Promise[list[DescribedGroup]]]:
        """DescribeGroups; groups that are there get the operations that are given for them."""

        def describe(shard: GroupShard, group_id: str) -> DescribedGroup:
            group = shard.classic.describe(group_id, api_version)
            if authorized_operations is not None and not group.error_code:
                group.authorized_operations = authorized_operations(group_id)
            return group

        def refuse(group_id: str, error: KafkaError) -> DescribedGroup:
            return DescribedGroup(group_id=group_id, error_code=error.code)

        return self.read_each(group_ids, describe, refuse)

    def delete_groups(self, group_ids: Iterable[str]) -> Slices[Promise[list[DeletableGroupResult]]]:
        """DeleteGroups, with as many commands as it takes; a command's failure is that of its groups."""
        shards: dict[int, list[str]] = {}
        for group_id in group_ids:
            shards.setdefault(self.partition_for(group_id), []).append(group_id)
            yield
        replies: list[Promise[list[DeletableGroupResult]]] = []
        for ids in shards.values():
            left = deque(ids)
            while left:
                replies.append(self._delete_some(left))
                yield
        return _concatenated(replies)

    def _delete_some(self, left: deque[str]) -> Promise[list[DeletableGroupResult]]:
        """Delete some of the groups of one shard, and take those that are done with out of ``left``."""
        done: list[str] = []

        def delete(shard: GroupShard) -> Result[list[DeletableGroupResult]]:
            result = shard.delete_groups(left)
            assert isinstance(result.response, list)
            done.extend(each.group_id for each in result.response)
            return result

        reply = self.write(left[0], delete)
        if reply.done and reply.error is not None and len(done) < len(left):
            # Whoever was begun with has failed, too; without a command nobody knows how far it would go.
            done.append(left[len(done)])
        for _ in done:
            left.popleft()
        return reply.recover(
            lambda error: [DeletableGroupResult(group_id=each, error_code=_code_of(error)) for each in done]
        )


def _beat_while_loading(error: Exception) -> HeartbeatResponse:
    if isinstance(error, KafkaError) and error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()
    raise error


def _code_of(error: Exception) -> ErrorCode:
    if isinstance(error, KafkaError):
        return error.code
    raise error


def _concatenated(replies: list[Promise[list[R]]]) -> Promise[list[R]]:
    return gather(replies).then(lambda lists: list(chain.from_iterable(lists)))


def _tell(error: Exception) -> R:  # type: ignore[type-var]
    """Raise what a client of a coordinator understands."""
    raise told_error(error) if isinstance(error, KafkaError) else error


@lru_cache(maxsize=16_384)
def _partition_for(group_id: str, count: int) -> int:
    return partition_for(group_id, count)
