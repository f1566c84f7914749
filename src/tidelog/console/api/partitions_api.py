"""Where a topic's partitions are and who leads them: reassignments by plan, their progress, elections.

A plan names what is copied; what is carried out is the plan that somebody saw, and only while partitions are
where they were then. A throttle is set as Kafka's own tool does it, and taken away when nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from tidelog.client.admin._reassignment_plan import Assignment, current_assignment, plan_reassignment
from tidelog.client.admin._replication_throttle import RATES, remove_throttle, set_throttle
from tidelog.client.admin.cluster_resources import ElectionType, PartitionReassignment
from tidelog.client.errors import ClientError
from tidelog.client.resources import ConfigResource, ConfigSource, ResourceType
from tidelog.console.api.endpoint import Call, Nothing, changes, numbers_of, reads
from tidelog.console.api.shapes import Done, raise_errors, require_typed
from tidelog.console.api.topics_api import described_topic
from tidelog.console.refusal import Refusal, not_found, sentence
from tidelog.console.settings import Role
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

_LARGEST_FACTOR = 32767


class ReassignRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Brokers to spread a topic over (none: all), or its replicas one by one; ``dry_run`` shows the plan."""

    brokers: list[int] = []
    replication_factor: int | None = None
    replicas: dict[str, list[int]] | None = None
    """By partition, the first leads; instead of ``brokers`` and ``replication_factor``."""
    expected: dict[str, list[int]] | None = None
    """Where partitions were when the plan was made; if they are elsewhere nothing is done."""
    throttle_bytes: int | None = None
    """What each broker copies a second at most, until nothing moves any more."""
    dry_run: bool = True


class PlannedMove(msgspec.Struct, frozen=True):
    """What becomes of one partition."""

    partition: int
    current: list[int]
    new: list[int]
    added: list[int]
    removed: list[int]
    size_bytes: int | None
    """Of the leader's log; each added replica copies as much."""


class ReassignAnswer(msgspec.Struct, frozen=True):
    """The plan, and whether it was carried out."""

    dry_run: bool
    moves: list[PlannedMove]
    copied_bytes: int
    copied_by_broker: dict[str, int]
    unknown_sizes: int
    """Partitions to copy whose size nobody tells."""


class AddedReplica(msgspec.Struct, frozen=True):
    """A replica in the making; ``bytes`` is None where its broker does not tell."""

    broker: int
    bytes: int | None
    in_sync: bool


class MoveRow(msgspec.Struct, frozen=True):
    """A partition on its way."""

    partition: int
    replicas: list[int]
    adding: list[AddedReplica]
    removing: list[int]
    size_bytes: int | None


class Reassignments(msgspec.Struct, frozen=True):
    """What moves; ``problem`` says why nobody can tell."""

    moves: list[MoveRow]
    throttle: dict[str, int]
    """Bytes a second by broker, where a throttle is set."""
    problem: str | None = None


class PartitionsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Some partitions, or all."""

    partitions: list[int] | None = None


class ElectRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Of some partitions or of all that need it; an unclean election has the topic's name typed again."""

    type: Literal["preferred", "unclean"] = "preferred"
    partitions: list[int] | None = None
    name: str = ""


class Refused(msgspec.Struct, frozen=True):
    """A partition for which something could not be done."""

    partition: int
    problem: str


class ElectAnswer(msgspec.Struct, frozen=True):
    """Partitions that have a new leader, that needed none, and that got none."""

    elected: list[int]
    not_needed: list[int]
    refused: list[Refused]


@changes(
    "POST",
    "/clusters/{cluster}/topics/{topic}/reassign",
    "Move a topic's partitions, or change its replication factor; a dry run shows the plan.",
    ReassignRequest,
    action="reassign partitions",
    role=Role.ADMIN,
)
async def reassign(call: Call, asked: ReassignRequest) -> ReassignAnswer:
    """A throttle is set on brokers and needs the role admin on the cluster."""
    if asked.throttle_bytes is not None:
        call.require(Role.ADMIN)
        if asked.throttle_bytes < 1:
            raise Refusal("throttle_bytes must be above 0 bytes per second; omit it for no throttle")
    admin = call.cluster.admin
    current = await current_assignment(admin, [call.topic])
    planned = await _planned(call, asked, current)
    changed = {each: new for each, new in planned.items() if tuple(new) != tuple(current[each])}
    call.details |= {
        "replicas": {str(each.partition): list(new) for each, new in sorted(changed.items())},
        "throttle_bytes": asked.throttle_bytes,
        "dry_run": asked.dry_run,
    }
    answer = await _shown(call, asked, current, changed)
    if asked.dry_run or not changed:
        return answer
    async with call.cluster.throttling:
        if asked.throttle_bytes is not None:
            call.cluster.unthrottle_when_moved = True
            await set_throttle(admin, current, changed, asked.throttle_bytes)
        raise_errors(await admin.alter_partition_reassignments(changed))
    await call.cluster.look_again()
    return answer


@reads(
    "/clusters/{cluster}/topics/{topic}/reassignments",
    "Reassignments in progress for a topic, and how much is copied.",
    Nothing,
)
async def reassignments(call: Call, asked: Nothing) -> Reassignments:
    """Asked of the controller; sizes are told by the brokers that copy and by the leaders."""
    described = await described_topic(call)
    leaders = {TopicPartition(call.topic, each.partition): each for each in described.partitions}
    try:
        found = await call.cluster.admin.list_partition_reassignments(list(leaders))
        throttle = await _throttle(call)
    except KafkaError as error:
        return Reassignments([], {}, sentence(error))
    sizes = await _sizes(call, found) if found else {}
    rows = []
    for place, move in sorted(found.items()):
        now = leaders[place]
        rows.append(
            MoveRow(
                place.partition,
                list(move.replicas),
                [
                    AddedReplica(each, sizes.get((each, place)), each in now.isr)
                    for each in move.adding_replicas
                ],
                list(move.removing_replicas),
                None if now.leader is None else sizes.get((now.leader, place)),
            )
        )
    return Reassignments(rows, throttle)


@changes(
    "POST",
    "/clusters/{cluster}/topics/{topic}/reassign/cancel",
    "Cancel reassignments in progress: partitions stay on their original brokers.",
    PartitionsRequest,
    action="cancel reassignment",
    role=Role.ADMIN,
)
async def cancel_reassignment(call: Call, asked: PartitionsRequest) -> Done:
    """A throttle goes with the last move of the cluster."""
    call.details["partitions"] = asked.partitions
    admin = call.cluster.admin
    described = await described_topic(call)
    places = [
        TopicPartition(call.topic, each.partition)
        for each in described.partitions
        if asked.partitions is None or each.partition in asked.partitions
    ]
    moving = await admin.list_partition_reassignments(places)
    if not moving:
        return Done("no reassignments are in progress")
    for result in await admin.alter_partition_reassignments(dict.fromkeys(moving)):
        # A move may end between our look and our word.
        if result.error is not None and result.error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            raise result.error
    await call.cluster.look_again()
    return Done()


@changes(
    "DELETE",
    "/clusters/{cluster}/throttle",
    "Remove the reassignment throttle, if no reassignment is in progress.",
    Nothing,
    action="remove throttle",
    role=Role.ADMIN,
)
async def unthrottle(call: Call, asked: Nothing) -> Done:
    """Of all topics and brokers, whoever has set it."""
    done = await remove_throttle(call.cluster.admin)
    for error in done.errors:
        raise error
    if done.moving:
        raise Refusal(
            f"{done.moving} partitions are still being reassigned: wait for them to finish, or cancel "
            "the reassignments",
            409,
            "MOVING",
        )
    call.cluster.unthrottle_when_moved = False
    return Done("" if done.found else "no throttle is set")


@changes(
    "POST",
    "/clusters/{cluster}/topics/{topic}/elect-leaders",
    "Elect leaders: the preferred replica, or any live replica where none is in sync.",
    ElectRequest,
    action="elect leaders",
)
async def elect_leaders(call: Call, asked: ElectRequest) -> ElectAnswer:
    """An unclean election loses records: it needs the role admin and the typed name."""
    unclean = asked.type == "unclean"
    if unclean:
        call.require(Role.ADMIN, call.topic)
        require_typed(asked.name, call.topic, "the topic's whole name", "for an unclean election")
    described = await described_topic(call)
    known = {each.partition for each in described.partitions}
    _require_known(known, asked.partitions or ())
    places = [
        TopicPartition(call.topic, each.partition)
        for each in described.partitions
        if (each.partition in asked.partitions if asked.partitions is not None else True)
        and (each.leader is None if unclean else bool(each.replicas) and each.leader != each.replicas[0])
    ]
    spared = sorted(known if asked.partitions is None else set(asked.partitions))
    spared = [each for each in spared if TopicPartition(call.topic, each) not in places]
    call.details |= {"type": asked.type, "partitions": [each.partition for each in places]}
    if not places:
        return ElectAnswer([], spared, [])
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    elected, refused = [], []
    for result in await call.cluster.admin.elect_leaders(places, kind):
        partition = result.partition.partition
        if result.error is None:
            elected.append(partition)
        elif result.error.code is ErrorCode.ELECTION_NOT_NEEDED:
            spared.append(partition)
        else:
            refused.append(Refused(partition, sentence(result.error)))
    await call.cluster.look_again()
    return ElectAnswer(sorted(elected), sorted(spared), refused)


async def _planned(call: Call, asked: ReassignRequest, current: Assignment) -> Assignment:
    nodes = {each.id: each for each in (await call.cluster.admin.describe_cluster()).nodes}
    if asked.expected is not None:
        for text, expected in asked.expected.items():
            place = _place(call, text)
            if list(current.get(place, ())) != expected:
                raise Refusal(
                    f"{place} is on {_ids(current.get(place, ()))} now and was on {_ids(expected)} in "
                    "the plan: create a new plan",
                    409,
                    "PLAN_OUTDATED",
                )
    if asked.replicas is not None:
        if asked.brokers or asked.replication_factor is not None:
            raise Refusal("specify either replicas, or brokers and replication_factor, not both")
        named = {_place(call, text): tuple(each) for text, each in asked.replicas.items()}
        if not named:
            raise Refusal("specify the replicas of at least one partition")
        _require_known({each.partition for each in current}, [each.partition for each in named])
        for place, replicas in named.items():
            if not replicas or len(set(replicas)) < len(replicas):
                raise Refusal(f"{place} needs at least one replica, and each broker only once")
            _require_brokers(nodes, replicas)
        return named
    chosen = asked.brokers or sorted(nodes)
    _require_brokers(nodes, chosen)
    if asked.replication_factor is not None and not 1 <= asked.replication_factor <= _LARGEST_FACTOR:
        raise Refusal(f"invalid replication_factor {asked.replication_factor}: it must be at least 1")
    try:
        return plan_reassignment(
            current, {each: nodes[each].rack for each in chosen}, asked.replication_factor
        )
    except ClientError as error:
        raise Refusal(sentence(error)) from None


async def _shown(
    call: Call, asked: ReassignRequest, current: Assignment, changed: Assignment
) -> ReassignAnswer:
    seen = await call.cluster.seen()
    moves = []
    by_broker: dict[str, int] = {}
    unknown = 0
    for place, new in sorted(changed.items()):
        size = seen.sizes.get(place)
        added = [each for each in new if each not in current[place]]
        unknown += bool(added) and size is None
        for broker in added:
            by_broker[str(broker)] = by_broker.get(str(broker), 0) + (size or 0)
        removed = [each for each in current[place] if each not in new]
        moves.append(PlannedMove(place.partition, list(current[place]), list(new), added, removed, size))
    return ReassignAnswer(asked.dry_run, moves, sum(by_broker.values()), by_broker, unknown)


async def _throttle(call: Call) -> dict[str, int]:
    brokers = [str(each.id) for each in (await call.cluster.admin.describe_cluster()).nodes]
    resources = [ConfigResource(ResourceType.BROKER, each) for each in brokers]
    found: dict[str, int] = {}
    for result in await call.cluster.admin.describe_configs(resources, names=RATES):
        rates = [
            int(each.value)
            for each in result.entries
            if each.source is ConfigSource.DYNAMIC_BROKER_CONFIG and each.value and each.value.isdecimal()
        ]
        if rates:
            found[result.resource.name] = min(rates)
    return found


async def _sizes(
    call: Call, moves: Mapping[TopicPartition, PartitionReassignment]
) -> dict[tuple[int, TopicPartition], int]:
    """Bytes of each replica, of brokers that tell."""
    told = await call.cluster.admin.describe_log_dirs(partitions=list(moves))
    return {
        (broker, replica.partition): replica.size_bytes
        for broker, dirs in told.items()
        for each in dirs.log_dirs
        for replica in each.replicas
        if not replica.is_future
    }


def _place(call: Call, text: str) -> TopicPartition:
    return TopicPartition(call.topic, *numbers_of([text], f"invalid partition {text[:50]!r}"))


def _require_known(known: set[int], named: Sequence[int]) -> None:
    for each in named:
        if each not in known:
            raise not_found(f"the topic has no partition {each}: its partitions are 0 to {max(known)}")


def _require_brokers(nodes: Mapping[int, object], named: Sequence[int]) -> None:
    for each in named:
        if each not in nodes:
            raise Refusal(f"there is no broker {each}: the brokers are {_ids(sorted(nodes))}")


def _ids(replicas: Sequence[int]) -> str:
    return ", ".join(map(str, replicas)) or "no broker"


ENDPOINTS = (reassign, reassignments, cancel_reassignment, unthrottle, elect_leaders)
