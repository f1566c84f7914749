"""The options of consumers."""

from __future__ import annotations

import re

from tidelog.client.options.common import (
    CLIENT,
    DEFAULT_API_TIMEOUT_MS,
    METRICS,
    NETWORK,
    connections_max_idle_ms,
    not_empty,
    one_of_any_case,
)
from tidelog.client.options.security import PROTOCOL, SASL, TLS
from tidelog.options import Option, at_least, distinct_items, matching, one_of, option

_DURATION = re.compile(r"(?i)by_duration:P(?=[\dT])(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?")


def _is_reset_policy(text: str) -> bool:
    return text.lower() in ("latest", "earliest", "none") or _DURATION.fullmatch(text) is not None


_GROUP = (
    option(
        "group.id",
        "string",
        None,
        "The consumer group to be a member of; needed for `subscribe` and for committing offsets.",
        importance="high",
    ),
    option(
        "group.protocol",
        "string",
        "classic",
        "How members agree: `classic` (a member assigns partitions) or `consumer` (the broker does, "
        "KIP-848).",
        one_of_any_case("classic", "consumer"),
        importance="high",
    ),
    option(
        "group.instance.id",
        "string",
        None,
        "Name of a static member: it may come back within `session.timeout.ms` without a rebalance.",
        not_empty(),
    ),
    option(
        "partition.assignment.strategy",
        "list",
        ("range", "cooperative-sticky"),
        "How partitions are divided, by preference: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, "
        "the names "
        "of Java's classes, or objects. For the classic protocol.",
        distinct_items(empty_ok=False),
    ),
    option(
        "group.remote.assignor",
        "string",
        None,
        "The broker's assignor to use. For the consumer protocol.",
    ),
    option(
        "session.timeout.ms",
        "int",
        45_000,
        "A member that sends no heartbeat for so long is taken out of the group. For the classic protocol.",
        importance="high",
    ),
    option(
        "heartbeat.interval.ms",
        "int",
        3000,
        "Pause between heartbeats; well below `session.timeout.ms`. For the classic protocol.",
        importance="high",
    ),
    option(
        "max.poll.interval.ms",
        "int",
        300_000,
        "A member that does not call `poll` for so long leaves the group, for it may be stuck.",
        at_least(1),
    ),
)

_OFFSETS = (
    option(
        "enable.auto.commit",
        "boolean",
        True,
        "Whether offsets are committed while polling. Off where there is no `group.id`.",
    ),
    option(
        "auto.commit.interval.ms",
        "int",
        5000,
        "How often that happens.",
        at_least(0),
        importance="low",
    ),
    option(
        "auto.offset.reset",
        "string",
        "latest",
        "Where to begin without a committed offset: `earliest`, `latest`, `none` (an error), or "
        "`by_duration:PT1H`, an hour back, say.",
        matching(
            "latest, earliest, none or by_duration:<ISO 8601>",
            "value must be either 'earliest', 'latest', 'none' or of the format 'by_duration:<PnDTnHnMn.nS>'",
            _is_reset_policy,
        ),
    ),
)

_FETCHING = (
    option(
        "fetch.min.bytes",
        "int",
        1,
        "A broker answers when it has so many bytes; more means fewer requests and later records.",
        at_least(0),
        importance="high",
    ),
    option(
        "fetch.max.wait.ms",
        "int",
        500,
        "How long a broker waits for `fetch.min.bytes`.",
        at_least(0),
        importance="low",
    ),
    option(
        "fetch.max.bytes",
        "int",
        50 * 1024 * 1024,
        "How many bytes a broker may answer with; a first batch that is larger comes all the same.",
        at_least(0),
    ),
    option(
        "max.partition.fetch.bytes",
        "int",
        1024 * 1024,
        "As `fetch.max.bytes`, for one partition.",
        at_least(0),
        importance="high",
    ),
    option("max.poll.records", "int", 500, "How many records `poll` returns at most.", at_least(1)),
    option(
        "isolation.level",
        "string",
        "read_uncommitted",
        "`read_committed` leaves out records of aborted and of open transactions.",
        one_of("read_committed", "read_uncommitted"),
    ),
    option(
        "check.crcs",
        "boolean",
        True,
        "Whether checksums of batches are looked at.",
        importance="low",
    ),
    option(
        "client.rack",
        "string",
        "",
        "The rack of this consumer; brokers that can may serve it from a replica there (KIP-392).",
        importance="low",
    ),
)

_RECORDS = (
    option(
        "key.deserializer",
        "class",
        None,
        "Turns bytes into keys: `bytes`, `str`, `json`, `msgpack`, a function or an object with "
        "`deserialize`. "
        "Not set: keys are bytes.",
        importance="high",
    ),
    option(
        "value.deserializer",
        "class",
        None,
        "Turns bytes into values, as `key.deserializer` does for keys.",
        importance="high",
    ),
    option(
        "interceptor.classes",
        "list",
        (),
        "Objects that see records before `poll` returns them, and commits.",
        distinct_items(),
        importance="low",
    ),
)

_TOPICS = (
    option(
        "allow.auto.create.topics",
        "boolean",
        True,
        "Whether subscribing to a topic may create it, if the broker allows that as well.",
    ),
    option(
        "exclude.internal.topics",
        "boolean",
        True,
        "Whether patterns pass over `__consumer_offsets` and its like.",
    ),
)

SUBJECTS: dict[str, tuple[Option, ...]] = {
    "Client": (*CLIENT, DEFAULT_API_TIMEOUT_MS),
    "Group": _GROUP,
    "Offsets": _OFFSETS,
    "Fetching": _FETCHING,
    "Records": _RECORDS,
    "Topics": _TOPICS,
    "Metrics": METRICS,
    "Network": (*NETWORK, connections_max_idle_ms(540_000)),
    "Security": (*PROTOCOL, *TLS, *SASL),
}
