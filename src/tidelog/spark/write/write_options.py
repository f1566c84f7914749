"""What a writing job has set, checked and in one immutable object that goes to the executors.

Names and rules are those of Spark's Kafka connector; ``deliveryGuarantee``, ``replayCheck`` and
``failOnMissingEpoch`` are Tidelog's own, ``txnAppId`` and ``txnVersion`` are called as Delta calls them. Made
by the two writers, on the driver; used by their tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.client.options import PRODUCER
from tidelog.errors import ConfigError
from tidelog.options import ConfigDef, at_least, one_of, option
from tidelog.spark.runtime._executor_login import GivenLogin, Login, login_of
from tidelog.spark.runtime._options import (
    BROKER_TIMEOUT,
    LOGIN_OPTIONS,
    REPORT_BATCHES,
    ClientRefusals,
    OptionValues,
    check_client,
    read_options,
)

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

WRITE_OPTIONS = ConfigDef(
    (
        option(
            "topic",
            "string",
            None,
            "The topic that all rows go to, whatever a column `topic` says. Without it that column is "
            "needed.",
        ),
        option(
            "includeHeaders",
            "boolean",
            False,
            "Taken as Spark's Kafka connector takes it; a column `headers` is written either way.",
        ),
        option(
            "deliveryGuarantee",
            "string",
            None,
            "`exactly-once`: each task writes in a transaction that also records the epoch, so that a "
            "replayed epoch adds nothing. `at-least-once`: tasks that are run again write again. Default: "
            "exactly once for streams and for batches with `txnAppId` and `txnVersion`.",
            one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
        ),
        option(
            "txnAppId",
            "string",
            None,
            "Names the application of an exactly-once batch write; with `foreachBatch` a fixed name of your "
            "choice, another one for each topic that a batch is written to. A stream has its query id.",
        ),
        option(
            "txnVersion",
            "long",
            None,
            "Numbers the writes of `txnAppId`, rising: in `foreachBatch` the batch id. A version that was "
            "written already is not written again.",
            at_least(0),
        ),
        option(
            "replayCheck",
            "string",
            "content",
            "How a replayed task is compared with what it wrote before: `content` (rows and a checksum over "
            "them) or `count`, for queries whose rows are not the same each time (`rand`, `uuid`).",
            one_of("content", "count"),
        ),
        option(
            "failOnMissingEpoch",
            "boolean",
            True,
            "Whether a query that is not in its first epoch fails where the brokers know nothing of its "
            "earlier ones (they expired, or another sink wrote them); otherwise it writes.",
        ),
        BROKER_TIMEOUT,
        REPORT_BATCHES,
        *LOGIN_OPTIONS,
    )
)

_TRANSACTION_TIMEOUT_MS = 900_000
_REFUSALS = ClientRefusals(
    {
        "key.serializer": "keys are written as they are; use DataFrame operations to make strings or bytes",
        "value.serializer": "values are written as they are; use DataFrame operations to make strings or "
        "bytes",
        "transactional.id": "each task has one of its own; name the application with txnAppId",
        "interceptor.classes": "rows go to the brokers without becoming objects that interceptors could see",
    }
)
_DEFAULTS = {
    # Rows come in large portions, so larger batches than a program's fill up, too.
    "batch.size": "262144",
    "max.request.size": "4194304",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """One writing job's options."""

    client: Mapping[str, str]
    """The producer's options, without ``kafka.`` and without its login."""
    login: Login = field(default_factory=GivenLogin)
    """Who it is; on executors, a delegation token."""
    topic: str | None = None
    exactly_once: bool = False
    app_id: str | None = None
    version: int | None = None
    compares_content: bool = True
    fails_on_missing_epoch: bool = True
    broker_timeout_ms: int = 20_000
    reports_batches: bool = True

    def producer_options(self, transactional_id: str | None = None) -> dict[str, str]:
        """The options of a task's producer."""
        options = dict(_DEFAULTS)
        if int(self.client.get("batch.size", 0)) > int(options["max.request.size"]):
            del options["max.request.size"]
        options.update(self.client)
        options.update(self.login.options())
        options.setdefault("client.id", "spark-tidelog-sink")
        if transactional_id is not None:
            options["transactional.id"] = transactional_id
            options.setdefault("transaction.timeout.ms", str(_TRANSACTION_TIMEOUT_MS))
        return options


def write_options(raw: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Read and check a job's options; raises ``ConfigError``."""
    values = read_options(raw, WRITE_OPTIONS, PRODUCER, _REFUSALS)
    app_id, version = values.optional_str("txnAppId"), values.optional_int("txnVersion")
    exactly_once = _is_exactly_once(values, streaming)
    topic = values.optional_str("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("option topic is empty: name a topic, or leave it out and have a column topic")
    client, login = login_of(
        values.client,
        use_token=values.bool("delegationToken"),
        mechanism=values.optional_str("delegationTokenMechanism"),
        timeout_ms=values.int("brokerTimeoutMs"),
    )
    options = WriteOptions(
        client=client,
        login=login,
        topic=None if topic is None else topic.strip(),
        exactly_once=exactly_once,
        app_id=app_id,
        version=version,
        compares_content=values.str("replayCheck") == "content",
        fails_on_missing_epoch=values.bool("failOnMissingEpoch"),
        broker_timeout_ms=values.int("brokerTimeoutMs"),
        reports_batches=values.bool("reportBatches"),
    )
    if exactly_once:
        _check_transactional(options)
    return options


def _check_transactional(options: WriteOptions) -> None:
    """What a producer without transactions may have set, such as ``acks=1``, one with them may not."""
    try:
        config = check_client(PRODUCER, options.producer_options("a task's"))
    except ConfigError as error:
        raise ConfigError(f"{error}; or set deliveryGuarantee={AT_LEAST_ONCE}") from None
    if not config.bool("enable.idempotence"):
        raise ConfigError(
            "exactly-once needs kafka.enable.idempotence: leave it, kafka.acks and kafka.retries out, or set "
            f"deliveryGuarantee={AT_LEAST_ONCE}"
        )


def _is_exactly_once(values: OptionValues, streaming: bool) -> bool:
    named = {"txnAppId", "txnVersion"} & values.given
    guarantee = values.optional_str("deliveryGuarantee")
    if streaming:
        if named:
            raise ConfigError(
                f"option {min(named)} is for batch writes: a stream is named by its query id and epoch; "
                f"leave it out"
            )
        return guarantee != AT_LEAST_ONCE
    if len(named) == 1:
        missing = ({"txnAppId", "txnVersion"} - named).pop()
        raise ConfigError(f"options txnAppId and txnVersion go together: set {missing}, too")
    if named and guarantee == AT_LEAST_ONCE:
        raise ConfigError(
            f"txnAppId and txnVersion have no use with deliveryGuarantee={AT_LEAST_ONCE}: leave them out"
        )
    if guarantee == EXACTLY_ONCE and not named:
        raise ConfigError(
            "a batch is written exactly once only if it has a name to be known by: set txnAppId and "
            "txnVersion"
        )
    return bool(named)
