"""The options of the data source, each declared once, in the names of Spark's Kafka connector.

Spark hands over every option that a job has set as text, its name in any case. :func:`read_options` sorts
them by a table: the data source's own ones become typed values, those that begin with ``kafka.`` go to
Tidelog's client, which has a table of its own, and everything else is refused with the nearest name.

``SOURCE_OPTIONS`` below are the ones of reading, with the rules between them in ``read._source_options``;
those of writing are in ``spark.write.write_options``.

Invariant: a value that gets past here is well-formed; whether options fit one another is the next module's.
Everything here is picklable and free of Spark. How tasks log in is ``spark.runtime._executor_login``'s.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidelog.client.options import ClientConfig, ClientKind
from tidelog.client.options.old_names import translated
from tidelog.errors import ConfigError
from tidelog.options import (
    MAX_INT,
    BadValueError,
    Check,
    ConfigDef,
    TypedValues,
    at_least,
    between,
    matching,
    one_of,
    option,
    suggest,
)

logger = logging.getLogger(__name__)

CLIENT_PREFIX = "kafka."
"""Options that begin like this are the client's."""

_DURATION = re.compile(r"\s*([0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)
_UNITS_MS = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
    "second": 1000, "seconds": 1000, "minute": 60_000, "minutes": 60_000,
    "hour": 3_600_000, "hours": 3_600_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
# What Spark itself hands to every reader and writer.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})


def duration_ms(text: str) -> int:
    """A length of time as Spark writes it (``15m``, ``500ms``, ``10 seconds``), in ms."""
    match = _DURATION.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS_MS:
        raise ValueError(f"{text!r} is no length of time")
    return int(match[1]) * _UNITS_MS[match[2].lower()]


def _is_duration(text: str) -> bool:
    try:
        duration_ms(text)
    except ValueError:
        return False
    return True


def any_case(*words: str) -> Check:
    """One of a few words, in any case."""
    return matching(
        f"one of {', '.join(words)}",
        f"it must be one of: {', '.join(words)}",
        lambda text: text.lower() in words,
    )


BROKER_TIMEOUT = option(
    "brokerTimeoutMs",
    "int",
    20_000,
    "How long a job waits where no broker at all answers before it fails and says so. While any broker "
    "answers, the leaders of partitions are waited for longer.",
    at_least(1),
)

REPORT_BATCHES = option(
    "reportBatches",
    "boolean",
    True,
    "Whether each micro-batch is reported to the cluster, where the console and `tidelog top` find it.",
)

LOGIN_OPTIONS = (
    option(
        "delegationToken",
        "boolean",
        True,
        "With a SASL login: whether executors log in by a delegation token that the driver gets, and renews, "
        "so that its password, ticket or key never leaves it. `false` sends the driver's own login to them; "
        "it is the way out where the brokers keep no tokens.",
    ),
    option(
        "delegationTokenMechanism",
        "string",
        None,
        "How executors log in by it. Default: as the driver, if that is SCRAM, else `SCRAM-SHA-512`.",
        one_of("SCRAM-SHA-256", "SCRAM-SHA-512"),
    ),
)

SOURCE_OPTIONS = ConfigDef(
    (
        option("subscribe", "string", None, "Topics to read, separated by commas."),
        option("subscribePattern", "string", None, "Read all topics whose whole name matches this pattern."),
        option("assign", "string", None, 'Partitions to read, as JSON: `{"topicA":[0,1],"topicB":[2]}`.'),
        option(
            "startingOffsets",
            "string",
            None,
            'Where to begin: `earliest`, `latest` or JSON, `{"topicA":{"0":23,"1":-2}}` with -2 for earliest '
            "and -1 for latest. Default: `latest` for streams, `earliest` for batches.",
        ),
        option("endingOffsets", "string", None, "Where a batch ends: `latest` (default) or JSON."),
        option("startingTimestamp", "long", None, "Begin with the first record at or after this time in ms."),
        option(
            "endingTimestamp", "long", None, "A batch ends before the first record at or after this time."
        ),
        option(
            "startingOffsetsByTimestamp",
            "string",
            None,
            'As `startingTimestamp`, by partition: `{"topicA":{"0":1000,"1":2000}}`.',
        ),
        option("endingOffsetsByTimestamp", "string", None, "As `endingTimestamp`, by partition."),
        option(
            "startingOffsetsByTimestampStrategy",
            "string",
            "error",
            "What to do where no record is that young: `error`, or `latest` to begin at the end.",
            any_case("error", "latest"),
        ),
        option(
            "maxOffsetsPerTrigger", "long", None, "How many offsets a micro-batch takes at most.", at_least(1)
        ),
        option("minOffsetsPerTrigger", "long", None, "A micro-batch waits for so many offsets…", at_least(1)),
        option(
            "maxTriggerDelay",
            "string",
            "15m",
            "…for at most this long.",
            matching(
                "a length of time, such as 15m", "it must be a length of time, such as 15m", _is_duration
            ),
        ),
        option(
            "minPartitions",
            "int",
            None,
            "Read with so many Spark tasks (at least, if there are so many offsets), which read several "
            "partitions of the log each or split them. Default: about one task for each core of the driver's "
            "machine, and no partition is split; on a cluster set it to the number of the executors' cores.",
            at_least(1),
        ),
        option(
            "maxRecordsPerPartition",
            "long",
            None,
            "How many offsets one Spark task reads at most.",
            at_least(1),
        ),
        option(
            "failOnDataLoss",
            "boolean",
            True,
            "Whether a query fails where records that it should read are gone (retention, a deleted topic); "
            "otherwise it warns and goes on. Either way the number of lost offsets is named.",
        ),
        option("includeHeaders", "boolean", False, "Whether there is a column `headers`."),
        option(
            "headersFormat",
            "string",
            "list",
            "What the column `headers` is: `list`, as in Spark's connector, or `packed`, bytes that "
            "`tidelog.spark.read.packed_headers.unpacked` reads. A list costs Spark 15 µs a row on its "
            "way to a function in Python, even where there are no headers.",
            one_of("list", "packed"),
        ),
        option(
            "groupIdPrefix", "string", "spark-tidelog-source", "How the names of this source's clients begin."
        ),
        option(
            "fetchOffset.numRetries",
            "int",
            3,
            "How often asking for offsets is tried again.",
            between(0, MAX_INT),
        ),
        option(
            "fetchOffset.retryIntervalMs",
            "long",
            10,
            "How long to wait before asking for offsets again.",
            at_least(0),
        ),
        option(
            "kafkaConsumer.pollTimeoutMs",
            "long",
            120_000,
            "How long a task waits for records of a partition, its leader being away, before it fails.",
            at_least(1),
        ),
        BROKER_TIMEOUT,
        option(
            "commitGroup",
            "string",
            None,
            "A consumer group to which the offsets of finished micro-batches are committed, so that every "
            "Kafka tool shows this query's lag. Spark's checkpoint alone decides where a query goes on.",
        ),
        REPORT_BATCHES,
        option(
            "valueFormat",
            "string",
            "raw",
            "The type of the column `value`: `raw` (binary), `string`, or `json` with `valueSchema`.",
            one_of("raw", "string", "json"),
        ),
        option(
            "valueSchema",
            "string",
            None,
            "The fields of JSON values, in DDL (`id BIGINT, name STRING`) or as a StructType's JSON. A value "
            "that is not such JSON is null, and its bytes are in the column `corruptValue`.",
        ),
        *LOGIN_OPTIONS,
    )
)


class OptionValues(TypedValues):
    """The typed values of a table's options, and the client's options beside them."""

    def __init__(
        self, values: Mapping[str, object], given: frozenset[str], client: Mapping[str, str]
    ) -> None:
        self._values = dict(values)
        self.given = given
        """The options of the table that the job has set."""
        self.client = dict(client)
        """The client's options, without ``kafka.``."""


@dataclass(frozen=True, slots=True)
class ClientRefusals:
    """Client options that a side of the data source decides itself, and what to set instead."""

    refused: Mapping[str, str]

    def check(self, client: Collection[str]) -> None:
        """Raise ``ConfigError`` where one of them is set."""
        for name in client:
            if name in self.refused:
                raise ConfigError(f"option {CLIENT_PREFIX}{name} cannot be set: {self.refused[name]}")


def read_options(
    raw: Mapping[str, str], table: ConfigDef, kind: ClientKind, refusals: ClientRefusals
) -> OptionValues:
    """Sort and type what a job has set; raises one ``ConfigError`` for each way in which it is wrong.

    The client's options come out in the names and the words that the client itself reads: some are compared
    here, and must not mean one thing to a reader and another to its connection.
    """
    names = {name.lower(): name for name in table}
    own: dict[str, str] = {}
    client: dict[str, str] = {}
    for written, text in raw.items():
        lowered = written.lower()
        if lowered in names:
            own[names[lowered]] = text
        elif lowered.startswith(CLIENT_PREFIX):
            name = _client_name(lowered.removeprefix(CLIENT_PREFIX), kind)
            if name in client:
                raise ConfigError(
                    f"option {CLIENT_PREFIX}{name} is set twice, once as {written}: leave one out"
                )
            client[name] = text.strip()
        elif lowered not in _SPARKS_OWN:
            raise ConfigError(_unknown(written, names, kind))
    try:
        values = table.parse(own)
    except BadValueError as error:
        raise ConfigError(str(error)) from None
    client = {name: str(value) for name, value in translated(client, kind.options, kind.name).items()}
    refusals.check(client)
    check_client(kind, client)
    return OptionValues(values, frozenset(own), client)


def _client_name(written: str, kind: ClientKind) -> str:
    """Kafka's name of an option; the client takes ``isolation_level`` for ``isolation.level``, too."""
    return written if written in kind.options else written.replace("_", ".")


def check_client(kind: ClientKind, client: Mapping[str, str]) -> ClientConfig:
    """The client's options, read by its own table; a refusal names them as the job has written them."""
    if not client.get("bootstrap.servers", "").strip():
        raise ConfigError(f"option {CLIENT_PREFIX}bootstrap.servers is not set: name a broker as host:port")
    try:
        return ClientConfig.parse(kind, client)
    except ConfigError as error:
        raise ConfigError(f"a {CLIENT_PREFIX}* option is wrong: {error}") from None


def _unknown(written: str, names: Mapping[str, str], kind: ClientKind) -> str:
    lowered = written.lower()
    if lowered == "path":
        return "the data source tidelog has no path: name topics with the option subscribe, or topic to write"
    name = _client_name(lowered, kind)
    if name in kind.options:
        return f"the data source tidelog has no option {written}; did you mean {CLIENT_PREFIX}{name}?"
    near = _nearest(lowered, names)
    return f"the data source tidelog has no option {written}" + (f"; did you mean {near}?" if near else "")


def _nearest(lowered: str, names: Mapping[str, str]) -> str | None:
    near = suggest(lowered, names) or _by_parts(lowered, names)
    return names[near] if near is not None else None


def _by_parts(lowered: str, names: Iterable[str]) -> str | None:
    """``startoffset`` and ``topics`` are further from what they mean than misspellings are."""
    plain = re.sub(r"[^a-z]", "", lowered)
    for name in names:
        if plain and (plain in name or name in plain):
            return name
    return None


def unset(values: OptionValues, names: Iterable[str], why: str) -> None:
    """Raise where one of ``names`` is set; ``why`` completes the sentence."""
    found = sorted(set(names) & values.given)
    if found:
        raise ConfigError(f"option {found[0]} {why}")
