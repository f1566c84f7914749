"""The lists of ``tidelog top``, as cells: for tables, for pipes and for the live picture.

A column says how dispensable it is: on narrow terminals those with the highest number go first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.cli.output import bytes_text, printable
from tidelog.cli.top.loads import BrokerLoad, ClusterLoad, GroupLoad, TopicLoad
from tidelog.cli.top.queries import QueryLoad
from tidelog.cli.top.watched import RequestLoad, ThrottledLoad


@dataclass(frozen=True)
class Column:
    """One column; ``dispensable`` 0 is always shown."""

    name: str
    number: bool = True
    dispensable: int = 0


@dataclass(frozen=True)
class Section:
    """One list with its heading."""

    title: str
    columns: tuple[Column, ...]
    rows: list[tuple[str, ...]]
    bad: frozenset[int] = frozenset()
    """Rows that tell of trouble."""
    nothing: str = ""
    """What is said where there are no rows."""


Bytes = Callable[[float | None], str]

_BROKERS = (
    Column("broker"),
    Column("address", number=False, dispensable=3),
    Column("rack", number=False, dispensable=8),
    Column("role", number=False, dispensable=4),
    Column("records/s"),
    Column("bytes/s", dispensable=2),
    Column("leads", dispensable=5),
    Column("hosts", dispensable=7),
    Column("in sync", dispensable=6),
    Column("size", dispensable=3),
    Column("free", dispensable=3),
)
_TOPICS = (
    Column("topic", number=False),
    Column("partitions", dispensable=3),
    Column("records/s"),
    Column("bytes/s", dispensable=1),
    Column("size", dispensable=2),
    Column("busiest", dispensable=4),
)
_GROUPS = (
    Column("group", number=False),
    Column("state", number=False, dispensable=2),
    Column("type", number=False, dispensable=4),
    Column("partitions", dispensable=3),
    Column("lag"),
    Column("lag ±/s", dispensable=1),
    Column("commits/s", dispensable=1),
)
_QUERIES = (
    Column("Spark query", number=False),
    Column("state", number=False, dispensable=1),
    Column("reads", number=False, dispensable=3),
    Column("writes", number=False, dispensable=4),
    Column("rows/s"),
    Column("lag"),
    Column("lag ±/s", dispensable=2),
    Column("batches", dispensable=5),
    Column("batch ms", dispensable=2),
    Column("host", number=False, dispensable=6),
    Column("error", number=False, dispensable=7),
)
_LONGEST_ERROR = 60
_REQUESTS = (
    Column("request", number=False),
    Column("broker", dispensable=2),
    Column("requests/s", dispensable=1),
    Column("p50 ms", dispensable=1),
    Column("p99 ms"),
    Column("mostly", number=False, dispensable=3),
)
_THROTTLED = (
    Column("client", number=False),
    Column("broker", dispensable=3),
    Column("quota", number=False, dispensable=2),
    Column("used", dispensable=1),
    Column("limit", dispensable=1),
    Column("pauses/s"),
)
_QUOTAS = {
    "producer_byte_rate": "produce",
    "consumer_byte_rate": "consume",
    "request_percentage": "requests",
    "controller_mutation_rate": "changes",
}


def sections(load: ClusterLoad, *, for_people: bool) -> list[Section]:
    """Brokers, topics, groups, Spark's queries, requests and throttled clients; with units for people."""
    size: Bytes = _people_bytes if for_people else _plain
    number: Bytes = _people_number if for_people else _plain
    down = {at for at, each in enumerate(load.brokers) if not each.alive}
    return [
        Section(
            "Brokers",
            _BROKERS,
            [_broker(each, number, size) for each in load.brokers],
            frozenset(down),
        ),
        Section(
            "Topics", _TOPICS, [_topic(each, number, size) for each in load.topics], nothing="no topics yet"
        ),
        Section("Groups", _GROUPS, [_group(each, number) for each in load.groups], nothing="no groups yet"),
        Section(
            "Spark queries",
            _QUERIES,
            [_query(each, number) for each in load.queries],
            frozenset(at for at, each in enumerate(load.queries) if each.error),
            nothing="no Spark queries reported",
        ),
        Section(
            "Slowest requests",
            _REQUESTS,
            [_request(each, number) for each in load.requests],
            nothing=load.unwatched or "no requests yet",
        ),
        Section(
            "Throttled clients",
            _THROTTLED,
            [_throttled(each, size) for each in load.throttled],
            nothing=load.unwatched or "nobody is throttled",
        ),
    ]


def _broker(each: BrokerLoad, number: Bytes, size: Bytes) -> tuple[str, ...]:
    return (
        str(each.id),
        each.address or "-",
        each.rack or "-",
        "controller" if each.controller else "-" if each.alive else "DOWN",
        number(each.records_per_second),
        size(each.bytes_per_second),
        str(each.partitions_led),
        str(each.partitions_hosted),
        str(each.partitions_in_sync),
        size(each.size_bytes),
        size(each.free_bytes),
    )


def _topic(each: TopicLoad, number: Bytes, size: Bytes) -> tuple[str, ...]:
    busiest = "-"
    if each.busiest_partition is not None and each.partitions > 1:
        busiest = f"{each.busiest_partition}: {each.busiest_share:.0%}"
    return (
        each.name,
        str(each.partitions),
        number(each.records_per_second),
        size(each.bytes_per_second),
        size(each.size_bytes),
        busiest,
    )


def _group(each: GroupLoad, number: Bytes) -> tuple[str, ...]:
    change = each.lag_per_second
    sign = "+" if change is not None and change >= 0.5 else ""
    return (
        each.group,
        each.state,
        each.type,
        str(each.partitions),
        number(each.lag),
        f"{sign}{number(change)}",
        number(each.committed_per_second),
    )


def _query(each: QueryLoad, number: Bytes) -> tuple[str, ...]:
    change = each.lag_per_second
    sign = "+" if change is not None and change >= 0.5 else ""
    error = each.error or ""
    return (
        printable(each.name) or "-",
        "running" if each.running else "ended",
        printable(", ".join(each.reads)) or "-",
        printable(", ".join(each.writes)) or "-",
        number(each.rows_per_second),
        number(each.lag),
        f"{sign}{number(change)}",
        number(each.batches),
        number(each.batch_ms),
        printable(each.host or "") or "-",
        printable(error if len(error) <= _LONGEST_ERROR else f"{error[:_LONGEST_ERROR]}…") or "-",
    )


def _request(each: RequestLoad, number: Bytes) -> tuple[str, ...]:
    return (
        each.request,
        str(each.broker),
        number(each.requests_per_second),
        f"{each.p50_ms:.1f}",
        f"{each.p99_ms:.1f}",
        f"{each.slowest_part.replace('_', ' ')} {each.slowest_share:.0%}" if each.slowest_share else "-",
    )


def _throttled(each: ThrottledLoad, size: Bytes) -> tuple[str, ...]:
    who = [*(["user " + each.user] if each.user else []), *([each.client_id] if each.client_id else [])]

    def amount(value: float | None) -> str:
        if value is None or not each.quota.endswith("_byte_rate"):
            return "-" if value is None else f"{value:.4g}"
        return size(value)

    return (
        printable(", ".join(who)) or "-",
        str(each.broker),
        _QUOTAS.get(each.quota, each.quota),
        amount(each.used),
        amount(each.limit),
        f"{each.pauses_per_second:.1f}",
    )


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _people_number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _people_bytes(value: float | None) -> str:
    return "-" if value is None else bytes_text(value)


def kept_columns(
    columns: Sequence[Column], widths: Sequence[int], available: int, *, gap: int, least_first: int
) -> list[int]:
    """Which columns fit into ``available`` cells; the first one may shrink to ``least_first``."""
    kept = list(range(len(columns)))

    def needed() -> int:
        first = min(widths[0], least_first)
        return first + sum(widths[at] for at in kept[1:]) + gap * (len(kept) - 1)

    while needed() > available:
        most = max(columns[at].dispensable for at in kept)
        if not most:
            break
        # The last one of them: the eye begins at the left.
        kept.remove(max(at for at in kept if columns[at].dispensable == most))
    return kept
