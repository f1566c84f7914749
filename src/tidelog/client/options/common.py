"""Options that all clients share: where the cluster is, how to reach it, how long to wait.

Names and defaults are those of Kafka 4's clients, but for two: ``send.buffer.bytes`` and
``receive.buffer.bytes`` are left to the operating system, whose automatic sizes are faster than the fixed
ones of Java's clients.
"""

from __future__ import annotations

from tidelog.options import MAX_INT, Check, Option, at_least, distinct_items, invalid, one_of, option


def one_of_any_case(*allowed: str) -> Check:
    """One of a few words, in capitals or not."""

    def refuse(name: str, value: object) -> None:
        if value is None or str(value).lower() not in {word.lower() for word in allowed}:
            raise invalid(name, value, f"String must be one of (case insensitive): {', '.join(allowed)}")

    spellings = dict.fromkeys(spelt for word in allowed for spelt in (word, word.lower(), word.upper()))
    return Check(f"one of {', '.join(allowed)}", refuse, choices=tuple(spellings))


def not_empty() -> Check:
    """A string of at least one character, or none at all."""

    def refuse(name: str, value: object) -> None:
        if value == "":
            raise invalid(name, value, "String must be non-empty")

    return Check("not empty", refuse)


CLIENT = (
    option(
        "bootstrap.servers",
        "list",
        (),
        "Brokers to ask first, as `host:port` separated by commas; they name the others. Give more than "
        "one, in "
        "case one is down. Must be set.",
        distinct_items(empty_ok=False),
        importance="high",
        required=True,
    ),
    option(
        "client.id",
        "string",
        "",
        "What this client is called in the brokers' logs and quotas. Empty: made up from the client's "
        "kind, its "
        "group or transactional id and a number.",
    ),
    option(
        "client.dns.lookup",
        "string",
        "use_all_dns_ips",
        "`use_all_dns_ips` tries every address of a host name in turn. "
        "`resolve_canonical_bootstrap_servers_only` replaces each bootstrap name by the canonical names of "
        "its "
        "addresses first.",
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    option(
        "request.timeout.ms",
        "int",
        30_000,
        "How long to wait for the answer to one request. A request that takes longer closes the connection "
        "and is "
        "tried again or fails.",
        at_least(0),
    ),
    option(
        "retry.backoff.ms",
        "long",
        100,
        "Pause before a failed request is tried again; doubled with each failure.",
        at_least(0),
        importance="low",
    ),
    option(
        "retry.backoff.max.ms",
        "long",
        1000,
        "The longest that this pause grows to.",
        at_least(0),
        importance="low",
    ),
)

NETWORK = (
    option(
        "reconnect.backoff.ms",
        "long",
        50,
        "Pause before a broker is connected to again; doubled with each failure, give or take a fifth.",
        at_least(0),
        importance="low",
    ),
    option(
        "reconnect.backoff.max.ms",
        "long",
        1000,
        "The longest that this pause grows to. Where only `reconnect.backoff.ms` is set, the pause does "
        "not grow.",
        at_least(0),
        importance="low",
    ),
    option(
        "socket.connection.setup.timeout.ms",
        "long",
        10_000,
        "How long opening a connection may take, greeting and authentication included; doubled with each "
        "failure.",
        at_least(0),
    ),
    option(
        "socket.connection.setup.timeout.max.ms",
        "long",
        30_000,
        "The longest that this limit grows to.",
        at_least(0),
    ),
    option(
        "metadata.max.age.ms",
        "long",
        300_000,
        "Metadata older than this is asked for again, so that new partitions are found without an error.",
        at_least(0),
        importance="low",
    ),
    option(
        "metadata.recovery.strategy",
        "string",
        "rebootstrap",
        "What to do when no known broker can be reached: `rebootstrap` starts again from "
        "`bootstrap.servers`, `none` "
        "keeps trying those it knows.",
        one_of_any_case("none", "rebootstrap"),
        importance="low",
    ),
    option(
        "metadata.recovery.rebootstrap.trigger.ms",
        "long",
        300_000,
        "Start again from `bootstrap.servers` also when no metadata has come for so long.",
        at_least(0),
        importance="low",
    ),
    option(
        "send.buffer.bytes",
        "int",
        -1,
        "Size of the socket's send buffer; -1: as the operating system has it. (Java: 131072.)",
        at_least(-1),
    ),
    option(
        "receive.buffer.bytes",
        "int",
        -1,
        "Size of the socket's receive buffer; -1: as the operating system has it. (Java: 65536, producers "
        "32768.)",
        at_least(-1),
    ),
)

METRICS = (
    option(
        "metric.reporters",
        "list",
        (),
        "Objects that receive all figures of `metrics()` (`MetricsReporter`): instances, classes or "
        "dotted names of classes.",
        distinct_items(),
        importance="low",
    ),
    option(
        "enable.metrics.push",
        "boolean",
        True,
        "Whether this client sends brokers those of its figures that the cluster's administrator has "
        "subscribed to (KIP-714). Brokers without that are not asked.",
        importance="low",
    ),
    option(
        "metrics.sample.window.ms",
        "long",
        30_000,
        "How long a window of rates, averages and maxima is.",
        at_least(0),
        importance="low",
    ),
    option(
        "metrics.num.samples",
        "int",
        2,
        "The number of windows they cover, including the current one.",
        at_least(1),
        importance="low",
    ),
)


def connections_max_idle_ms(default: int) -> Option:
    """The option, whose default differs between clients."""
    return option(
        "connections.max.idle.ms",
        "long",
        default,
        "Connections that are not used for so long are closed; -1: never. Brokers close theirs after ten "
        "minutes.",
    )


DEFAULT_API_TIMEOUT_MS = option(
    "default.api.timeout.ms",
    "int",
    60_000,
    "How long a call may take, retries included, where it is not told otherwise.",
    at_least(0),
)

NO_LIMIT = MAX_INT
