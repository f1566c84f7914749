"""Subscriptions to clients' metrics (KIP-714): which figures which clients push to the brokers, how often.

A subscription is a config resource (type 16) with a name and three options: ``metrics``, prefixes of names of
figures; ``interval.ms``; and ``match``, what a client has to be like, as ``selector=regular expression``. It
exists as long as it has an entry. ``check_subscription`` is what changes are refused by, in Kafka's words;
``read_subscription`` gives what the broker goes by. Expressions are Java's as far as they can be matched in
linear time (``regex/linear_regex``): others are refused when they are set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.options import BadValueError, ConfigDef, option

if TYPE_CHECKING:
    from tidelog.regex.linear_regex import LinearRegex

DEFAULT_INTERVAL_MS = 300_000
_LEAST_INTERVAL_MS, _MOST_INTERVAL_MS = 100, 3_600_000
ALL_METRICS = "*"

SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a subscription may ask of a client."""

_LONGEST_MATCHED = 256

CLIENT_METRICS_OPTIONS = ConfigDef(
    (
        option(
            "metrics",
            "list",
            (),
            "Prefixes of the names of figures that clients push; * for all, nothing for none.",
        ),
        option(
            "interval.ms",
            "int",
            DEFAULT_INTERVAL_MS,
            "How often a client pushes, between 100 ms and an hour.",
        ),
        option(
            "match",
            "list",
            (),
            "What clients it is for: selectors as name=regular expression, all of which must match the whole "
            f"value. Selectors are {', '.join(SELECTORS)}. Without any it is for every client.",
        ),
    )
)


class Subscription(NamedTuple):
    """One subscription, ready for use."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, LinearRegex]

    def is_for(self, client: Mapping[str, str | None]) -> bool:
        """Whether a client, given by what the selectors ask for, has this subscription."""
        return all(_matches(pattern, client.get(selector)) for selector, pattern in self.match.items())


def _matches(pattern: LinearRegex, value: str | None) -> bool:
    # Whatever is overlong or not printable is chosen by no subscription that asks for it: matching stays
    # cheap, and differs from Java's nowhere.
    return (
        value is not None
        and len(value) <= _LONGEST_MATCHED
        and value.isprintable()
        and pattern.fullmatch(value) is not None
    )


def check_subscription(name: str, entries: Mapping[str, str]) -> None:
    """Refuse the complete entries of a subscription."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    read_subscription(entries)


def read_subscription(entries: Mapping[str, str]) -> Subscription:
    """A subscription of its entries; raises the refusal of what it cannot be."""
    for each in entries:
        if each not in CLIENT_METRICS_OPTIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {each}")
    try:
        values = {each: CLIENT_METRICS_OPTIONS[each].parse(text) for each, text in entries.items()}
    except BadValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    interval_ms = values.get("interval.ms", DEFAULT_INTERVAL_MS)
    metrics, match = values.get("metrics", ()), values.get("match", ())
    assert isinstance(interval_ms, int)
    assert isinstance(metrics, tuple)
    assert isinstance(match, tuple)
    for each, items in (("metrics", metrics), ("match", match)):
        if "" in items:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration '{each}' values must not be empty.")
    if not _LEAST_INTERVAL_MS <= interval_ms <= _MOST_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        )
    return Subscription(metrics, interval_ms, _patterns(match))


def _patterns(texts: tuple[str, ...]) -> dict[str, LinearRegex]:
    if not texts:
        return {}
    # Few brokers have any.
    from tidelog.regex.linear_regex import LinearRegex, RegexFault

    found: dict[str, LinearRegex] = {}
    for text in texts:
        parts = text.split("=")
        while parts and not parts[-1]:
            # Java's way to split.
            parts.pop()
        illegal = f"Illegal client matching pattern: {text}"
        if len(parts) != 2 or parts[0].strip() not in SELECTORS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, illegal)
        try:
            found[parts[0].strip()] = LinearRegex(parts[1].strip())
        except RegexFault as fault:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{illegal} ({fault})") from fault
    return found
