"""What Kafka's own protocol tells of clients, whoever made the broker: members of groups, and producers.

DescribeGroups and ConsumerGroupDescribe name the client id and the host of each member; DescribeProducers the
ids of idempotent producers and when they last wrote, ListTransactions the transactional ids that some of them
have. Who only fetches, or produces without idempotence, is not told by any of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tidelog.cli.failure import sentence
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.transaction_resources import ProducerState
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition

MOST_PRODUCERS = 1000


@dataclass(frozen=True)
class Member:
    """One member of one group."""

    client_id: str
    host: str
    group: str
    state: str
    member_id: str
    partitions: int | None


@dataclass(frozen=True)
class KnownProducer:
    """An idempotent producer that partitions remember."""

    producer_id: int
    transactional_id: str | None
    partitions: int
    open_transactions: int
    last_write_ms: int


@dataclass
class Clients:
    """All that could be learned, and why the rest could not."""

    members: list[Member] = field(default_factory=list)
    producers: list[KnownProducer] = field(default_factory=list)
    producers_left_out: int = 0
    problems: list[str] = field(default_factory=list)


async def ask(admin: AsyncAdmin, *, producers: bool = True) -> Clients:
    """Ask the whole cluster; what may not be seen is a problem, not a failure."""
    found = Clients()
    try:
        await _members(admin, found)
        if producers:
            await _producers(admin, found)
    except TidelogError as error:
        found.problems.append(sentence(error))
    return found


async def _members(admin: AsyncAdmin, found: Clients) -> None:
    listed = await admin.list_groups()
    found.problems += [sentence(each) for each in listed.errors]
    for name, group in (await admin.describe_groups([each.group_id for each in listed.groups])).items():
        if group.error is not None:
            found.problems.append(sentence(group.error))
            continue
        found.members += [
            Member(
                each.client_id,
                each.host.lstrip("/"),
                name,
                str(group.state),
                each.member_id,
                None if each.assignment is None else len(each.assignment),
            )
            for each in group.members
        ]
    found.members.sort(key=lambda each: (each.client_id, each.host, each.group))


async def _producers(admin: AsyncAdmin, found: Clients) -> None:
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in await admin.list_topics(include_internal=False)
        for each in topic.partitions
        if each.leader is not None
    ]
    states: dict[int, list[ProducerState]] = defaultdict(list)
    refused: set[str] = set()
    for described in (await admin.describe_producers(partitions)).values():
        if described.error is not None:
            refused.add(sentence(described.error))
        for producer in described.producers:
            states[producer.producer_id].append(producer)
    found.problems += sorted(refused)[:3]
    listed = await admin.list_transactions()
    found.problems += [sentence(each) for each in listed.errors]
    names = {each.producer_id: each.transactional_id for each in listed.transactions}
    producers = [
        KnownProducer(
            producer_id,
            names.get(producer_id),
            len(each),
            sum(state.txn_start_offset is not None for state in each),
            max(state.last_timestamp_ms for state in each),
        )
        for producer_id, each in states.items()
    ]
    producers.sort(key=lambda each: (-each.last_write_ms, each.producer_id))
    found.producers = producers[:MOST_PRODUCERS]
    found.producers_left_out = len(producers) - len(found.producers)
