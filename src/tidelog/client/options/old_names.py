"""Options of Kafka's clients before 0.9 that are still accepted, and the current option for each.

A properties file of that time works as it is. ``translated`` replaces its names and values by current ones
before the option tables read them, and one warning names the current options. An old option whose meaning
cannot be preserved is refused with the remedy, here or in ``foreign_names``.

The table is in order of precedence: where two old options mean the same current one, the first counts and the
warning names the other. A current option and an old name for it in the same mapping are an error.

Invariant: no name here is a current option, and every option that an entry names exists; a test checks both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from tidelog.client._address import zookeeper_server
from tidelog.errors import ConfigError
from tidelog.options import MAX_INT

logger = logging.getLogger(__name__)
_warned: set[tuple[str, str]] = set()

Convert = Callable[[str, object], object]
"""From the name as the user has written it and the old value to the current value, or a ``ConfigError``."""

LEAST_SESSION_TIMEOUT_MS = 6000
"""Brokers take no shorter sessions by default (``group.min.session.timeout.ms``)."""


class OldOption(NamedTuple):
    """An option of old clients: the option that it sets now, or why it has no effect."""

    name: str
    current: str | None
    """The option that it sets; None: it has no effect."""
    note: str = ""
    """Completes the warning."""
    convert: Convert = lambda written, value: value
    also: str | None = None
    """An option that gets the same value where nothing else sets it."""


def _zookeeper(written: str, value: object) -> object:
    return zookeeper_server(str(value))


def _session_timeout(written: str, value: object) -> object:
    text = str(value).strip()
    return max(int(text), LEAST_SESSION_TIMEOUT_MS) if text.isdecimal() else value


def _metadata_age(written: str, value: object) -> object:
    # A negative value: only after errors.
    return MAX_INT if str(value).strip().startswith("-") else value


def _max_block(written: str, value: object) -> object:
    text = str(value).strip()
    if text == "0":
        raise ConfigError(
            f"{written}=0 cannot be honored, for a send also waits for metadata: set max.block.ms instead"
        )
    return MAX_INT if text == "-1" else value


_CODECS = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4"}


def _codec(written: str, value: object) -> object:
    text = str(value).strip().lower()
    return _CODECS.get(text, text)


_ENCODERS = {"kafka.serializer.StringEncoder": "str", "kafka.serializer.DefaultEncoder": "bytes"}


def _serializer(written: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text not in _ENCODERS:
        known = " and ".join(_ENCODERS)
        current = "key.serializer" if written.startswith("key") else "value.serializer"
        raise ConfigError(
            f"{written}={text} cannot be honored, only {known} can: set {current} to str, json, msgpack or a "
            "Python function"
        )
    return _ENCODERS[text]


def _producer_type(written: str, value: object) -> object:
    text = str(value).strip()
    if text not in ("sync", "async"):
        raise ConfigError(f"{written}={text} is neither sync nor async: leave it out")
    return 0 if text == "sync" else None


def _block_on_full(written: str, value: object) -> object:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{written}={value} is neither true nor false: leave it out, or set max.block.ms")
    return MAX_INT if text == "true" else None


def _only(allowed: str, remedy: str) -> Convert:
    """Accept the one value that changes nothing, and refuse others with the remedy."""

    def check(written: str, value: object) -> object:
        if str(value).strip().lower() != allowed:
            raise ConfigError(f"{written}={value} cannot be honored: {remedy}")
        return None

    return check


_IMPORT = "run `tidelog groups import-zookeeper` to copy offsets from ZooKeeper"
_GROUP_LIMITS = "session.timeout.ms and max.poll.interval.ms bound how long a group waits for a member"

OLD_OPTIONS: tuple[OldOption, ...] = (
    OldOption("metadata.broker.list", "bootstrap.servers"),
    OldOption("zookeeper.connect", "bootstrap.servers", _IMPORT, _zookeeper),
    OldOption("zookeeper.session.timeout.ms", "session.timeout.ms", convert=_session_timeout),
    OldOption(
        "zookeeper.connection.timeout.ms",
        None,
        "socket.connection.setup.timeout.ms bounds each attempt to connect",
    ),
    OldOption("zookeeper.sync.time.ms", None, "brokers coordinate groups"),
    # Producers
    OldOption("request.required.acks", "acks"),
    OldOption("key.serializer.class", "key.serializer", convert=_serializer),
    OldOption("serializer.class", "value.serializer", convert=_serializer, also="key.serializer"),
    OldOption(
        "producer.type",
        "linger.ms",
        "every producer sends in the background, and `.result()` of what `send` returns waits; linger.ms "
        "sets how long a batch waits",
        _producer_type,
    ),
    OldOption("queue.buffering.max.ms", "linger.ms"),
    OldOption("queue.buffering.max.messages", None, "buffer.memory bounds what is buffered, in bytes"),
    OldOption("queue.enqueue.timeout.ms", "max.block.ms", convert=_max_block),
    OldOption(
        "block.on.buffer.full",
        "max.block.ms",
        "`send` waits for room in the buffer, for a limited time",
        _block_on_full,
    ),
    OldOption("metadata.fetch.timeout.ms", "max.block.ms"),
    OldOption("timeout.ms", "request.timeout.ms"),
    OldOption("batch.num.messages", None, "batch.size bounds a batch, in bytes"),
    OldOption("compression.codec", "compression.type", convert=_codec),
    OldOption(
        "compressed.topics",
        None,
        "compression.type applies to all topics",
        _only("", "compression.type applies to all topics of a producer, so use one producer for each codec"),
    ),
    OldOption("message.send.max.retries", "retries"),
    OldOption("topic.metadata.refresh.interval.ms", "metadata.max.age.ms", convert=_metadata_age),
    # Consumers
    OldOption("auto.commit.enable", "enable.auto.commit"),
    OldOption("fetch.message.max.bytes", "max.partition.fetch.bytes"),
    OldOption("fetch.wait.max.ms", "fetch.max.wait.ms"),
    OldOption("socket.timeout.ms", "request.timeout.ms"),
    OldOption("offsets.channel.socket.timeout.ms", "request.timeout.ms"),
    OldOption("socket.receive.buffer.bytes", "receive.buffer.bytes"),
    OldOption("refresh.leader.backoff.ms", "retry.backoff.ms"),
    OldOption("offsets.channel.backoff.ms", "retry.backoff.ms"),
    OldOption(
        "offsets.commit.max.retries", None, "default.api.timeout.ms bounds how long a commit is retried"
    ),
    OldOption(
        "offsets.storage",
        None,
        "offsets are stored in the cluster",
        _only("kafka", f"offsets are stored in the cluster, so {_IMPORT} and leave the option out"),
    ),
    OldOption(
        "dual.commit.enabled",
        None,
        "offsets are stored in the cluster",
        _only("false", f"offsets are stored in the cluster, so {_IMPORT} and leave the option out"),
    ),
    OldOption("num.consumer.fetchers", None, "one connection to each broker fetches"),
    OldOption(
        "queued.max.message.chunks",
        None,
        "fetch.max.bytes and max.partition.fetch.bytes bound what is fetched ahead",
    ),
    OldOption("rebalance.max.retries", None, _GROUP_LIMITS),
    OldOption("rebalance.backoff.ms", None, _GROUP_LIMITS),
    OldOption(
        "consumer.timeout.ms",
        None,
        "reading waits without a limit unless `records(timeout=…)` sets one",
        _only("-1", "use `records(timeout=…)`, which ends after so many seconds without records"),
    ),
)

OLD_VALUES = {("auto.offset.reset", "smallest"): "earliest", ("auto.offset.reset", "largest"): "latest"}
"""Values that options had before 0.9, and the current ones."""

_BROKERS = ("bootstrap.servers",)
_BY_NAME = {each.name: each for each in OLD_OPTIONS}


def translated(
    options: Mapping[str, object],
    known: Container[str],
    kind: str,
    only: Container[str] | None = None,
) -> dict[str, object]:
    """``options`` with old names and values replaced by current ones; warns about them once per process.

    ``known`` are the options of the client, a ``kind`` such as "consumer"; an old option of another kind of
    client has no effect. ``only`` restricts the translation to old names of those options.
    """
    found = dict(options)
    old = {_dotted(name): name for name in options if isinstance(name, str) and _dotted(name) in _BY_NAME}
    notes: dict[str, str] = {}
    set_by: dict[str, str] = {}
    for entry in OLD_OPTIONS:
        written = old.get(entry.name)
        if written is None or (only is not None and entry.current not in only):
            continue
        value = found.pop(written)
        if value is not None:
            notes[written] = _apply(entry, written, value, found, known, kind, set_by)
    if only is None:
        notes |= _current_values(found)
    _warn(notes)
    return found


def _apply(
    entry: OldOption,
    written: str,
    value: object,
    found: dict[str, object],
    known: Container[str],
    kind: str,
    set_by: dict[str, str],
) -> str:
    """Put the current option into ``found``; the note for the warning."""
    current = entry.current
    if current is not None and current not in known:
        return f"has no effect on a {kind}, which has no option {current}"
    if current in set_by:
        return f"has no effect, as {set_by[current]} sets {current}"
    if current is not None and (twice := _as_written(current, found)) is not None:
        raise ConfigError(f"{written} is the old name of {twice}, which is set as well: leave {written} out")
    now = entry.convert(written, value)
    if current is None:
        return f"has no effect: {entry.note}"
    if now is None:
        return f"has no effect: {entry.note} (see {current})"
    found[current] = now
    set_by[current] = written
    if entry.also is not None and entry.also not in set_by and _as_written(entry.also, found) is None:
        found[entry.also] = now
        set_by[entry.also] = written
    shown = current if str(now) == str(value) else f"{current}={now}"
    return f"is now {shown}" + (f" ({entry.note})" if entry.note else "")


def _current_values(found: dict[str, object]) -> dict[str, str]:
    notes = {}
    for (name, old), now in OLD_VALUES.items():
        written = _as_written(name, found)
        if written is not None and str(found[written]).strip().lower() == old:
            notes[f"{written}={found[written]}"] = f"is now {written}={now}"
            found[written] = now
    return notes


def current_brokers(options: Mapping[str, object]) -> dict[str, object]:
    """``options`` with ``bootstrap.servers`` in place of its old names, for callers of any kind of client."""
    return translated(options, _BROKERS, "client", _BROKERS)


def overlaid(lower: Mapping[str, object], upper: Mapping[str, object]) -> dict[str, object]:
    """Both mappings, where an option of ``upper`` replaces that of ``lower`` under any of its names."""
    replaced = {_meaning(name) for name in upper}
    return {name: value for name, value in lower.items() if _meaning(name) not in replaced} | dict(upper)


def _meaning(name: str) -> str:
    dotted = _dotted(name)
    entry = _BY_NAME.get(dotted)
    return dotted if entry is None or entry.current is None else entry.current


def _as_written(name: str, found: Mapping[str, object]) -> str | None:
    """How ``found`` spells an option that it sets: with dots or with underscores."""
    for spelling in (name, name.replace(".", "_")):
        if found.get(spelling) is not None:
            return spelling
    return None


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _warn(notes: Mapping[str, str]) -> None:
    fresh = [note for note in notes.items() if note not in _warned]
    if fresh:
        _warned.update(fresh)
        logger.warning("options of Kafka before 0.9: %s", "; ".join(map(" ".join, fresh)))
