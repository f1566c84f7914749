"""Requests of the consumer protocol (KIP-848), and members that are brought to a state first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.compat.side_by_side.group_requests import group_of, settled
from tests.compat.side_by_side.side import TIMEOUT_S, Side

from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

LEAVE, LEAVE_FOR_A_WHILE = -1, -2


def heartbeat_request(
    group_id: str, member_id: str, epoch: int = 0, **more: object
) -> ConsumerGroupHeartbeatRequest:
    """A request to join, right unless ``more`` says otherwise."""
    fields: dict[str, object] = {}
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [], "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        **{**fields, **more},  # type: ignore[arg-type]
    )


def sorted_assignment(answer: object) -> object:
    """Partitions of an assignment in order: Kafka's come in the order of a hash table."""
    if isinstance(answer, dict) and answer.get("assignment"):
        _sort(answer["assignment"])
    return answer


def _sort(assignment: dict[str, list[dict[str, object]]]) -> None:
    assignment["topic_partitions"].sort(key=lambda each: str(each["topic_id"]))
    for each in assignment["topic_partitions"]:
        each["partitions"] = sorted(each["partitions"])  # type: ignore[call-overload]


def described(side: Side, *group_ids: str, version: int = 1, **more: object) -> object:
    """Groups as ConsumerGroupDescribe shows them, members by their ids."""
    settled(side)
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), **more)  # type: ignore[arg-type]
    answer = side.ask(version, request)
    if isinstance(answer, dict):
        for group in answer["groups"]:
            group["members"].sort(key=lambda each: str(each["member_id"]))
            for member in group["members"]:
                member["subscribed_topic_names"].sort()
                _sort(member["assignment"])
                _sort(member["target_assignment"])
    return answer


@dataclass
class Consumer:
    """A member of the new protocol: it owns what it was told to."""

    side: Side
    stem: str = "a"
    group_id: str = ""
    epoch: int = 0
    version: int = 1
    owned: list[TopicPartitions] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.group_id = self.group_id or group_of(self.side)

    @property
    def member_id(self) -> str:
        return f"{self.side.prefix}-{self.stem}"

    def join(self, *topics: str, **more: object) -> object:
        """The first heartbeat, which names topics."""
        self.epoch, self.owned = 0, []
        return self.heartbeat(subscribed_topic_names=list(topics), **more)

    def heartbeat(self, **more: object) -> object:
        """A heartbeat, and what it tells is taken up."""
        request = heartbeat_request(self.group_id, self.member_id, self.epoch, **more)
        found = self.side.ask_raw(self.version, request)
        if isinstance(found, str):
            return found
        if found.error_code == 0:  # type: ignore[attr-defined]
            self.epoch = found.member_epoch  # type: ignore[attr-defined]
            if found.assignment is not None:  # type: ignore[attr-defined]
                self.owned = list(found.assignment.topic_partitions)  # type: ignore[attr-defined]
        return sorted_assignment(self.side.plain(found, self.version))

    def owns(self) -> object:
        """A heartbeat that tells what this member owns now."""
        return self.heartbeat(topic_partitions=self.owned)

    def leave(self, epoch: int = LEAVE, **more: object) -> object:
        request = heartbeat_request(self.group_id, self.member_id, epoch, **more)
        return self.side.ask(self.version, request)


def read_topic(side: Side, stem: str = "t", partitions: int = 1) -> str:
    """A topic of which the group coordinator knows: in Kafka it hears of topics after others do."""
    name = side.topic(stem, partitions)
    scout = Consumer(side, "scout", group_of(side, f"scout-{stem}"))
    deadline = time.monotonic() + TIMEOUT_S
    scout.join(name)
    while not scout.owned:
        assert time.monotonic() < deadline, f"{side.name}: {name} is not assigned"
        scout.heartbeat()
    scout.leave()
    return name


def reconcile(*consumers: Consumer) -> None:
    """Heartbeats in turn until nobody is told anything new."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        before = [(each.epoch, str(each.owned)) for each in consumers]
        answers = [each.owns() for each in consumers]
        assert "UNKNOWN" not in str(answers), answers
        after = [(each.epoch, str(each.owned)) for each in consumers]
        if before == after and len({each.epoch for each in consumers}) == 1:
            return
        assert time.monotonic() < deadline, f"no rest: {after}"
