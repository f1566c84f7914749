"""Names that other Python clients have for options: what Tidelog calls the same, or does instead.

kafka-python, aiokafka and confluent-kafka (librdkafka) have names of their own beside Kafka's. Nobody's name
is honoured but Kafka's; whoever brings one of these is told the way. ``client_config`` asks, for names that
no option table has.

Invariant: no name here is one of ours, and every option that an advice names exists; a test checks both.
"""

from __future__ import annotations

import re

_NEGOTIATED = "versions are negotiated with each broker: leave it out"
_CALLBACK_PER_RECORD = "give `on_delivery` to each `send`"
_LOGGING = "Python's logging under `tidelog` says what it does: leave it out"
_PEM_KEYSTORE = "{ssl.keystore.location} is one PEM file with the key and the certificates"
_NOT_SEEN = "the end of a partition is what `end_offsets` tells: leave it out"
_BYTES_NOT_RECORDS = "{buffer.memory} bounds what is buffered, in bytes"

FOREIGN_NAMES: dict[str, str] = {
    # kafka-python and aiokafka
    "api.version": _NEGOTIATED,
    "api.version.auto.timeout.ms": _NEGOTIATED,
    "consumer.timeout.ms": "`records(timeout=…)` ends after so many seconds without records",
    "default.offset.commit.callback": "give `callback` to `commit_nowait`",
    "loop": "the running loop is used: leave it out",
    "partitioner": "it is {partitioner.class}",
    "sasl.oauth.token.provider": "it is {sasl.login.callback.handler.class}, a function that returns a token",
    "sasl.plain.password": "it is {sasl.password}",
    "sasl.plain.username": "it is {sasl.username}",
    "ssl.cafile": "it is {ssl.truststore.location}",
    "ssl.certfile": _PEM_KEYSTORE,
    "ssl.check.hostname": "{ssl.endpoint.identification.algorithm} set to '' switches the check off",
    "ssl.ciphers": "it is {ssl.cipher.suites}",
    "ssl.context": "{ssl.truststore.location}, {ssl.keystore.location} and the like say what it would hold",
    "ssl.keyfile": _PEM_KEYSTORE,
    "ssl.password": "it is {ssl.key.password}",
    # confluent-kafka
    "api.version.request": _NEGOTIATED,
    "batch.num.messages": "{batch.size} bounds a batch, in bytes",
    "broker.version.fallback": _NEGOTIATED,
    "compression.codec": "it is {compression.type}",
    "debug": _LOGGING,
    "delivery.report.only.error": _CALLBACK_PER_RECORD,
    "enable.auto.offset.store": "set {enable.auto.commit} to false and `commit` what is done",
    "enable.partition.eof": _NOT_SEEN,
    "enable.ssl.certificate.verification": "it cannot be switched off: trust the broker's own authority "
    "with {ssl.truststore.location}",
    "error.cb": "errors are raised, and logged under `tidelog`: leave it out",
    "fetch.message.max.bytes": "it is {max.partition.fetch.bytes}",
    "fetch.wait.max.ms": "it is {fetch.max.wait.ms}",
    "log.level": _LOGGING,
    "logger": _LOGGING,
    "max.in.flight": "it is {max.in.flight.requests.per.connection}",
    "message.max.bytes": "it is {max.request.size}",
    "message.send.max.retries": "it is {retries}",
    "message.timeout.ms": "it is {delivery.timeout.ms}",
    "metadata.broker.list": "it is {bootstrap.servers}",
    "on.commit": "give `callback` to `commit_nowait`",
    "on.delivery": _CALLBACK_PER_RECORD,
    "queue.buffering.max.kbytes": _BYTES_NOT_RECORDS,
    "queue.buffering.max.messages": _BYTES_NOT_RECORDS,
    "queue.buffering.max.ms": "it is {linger.ms}",
    "request.required.acks": "it is {acks}",
    "sasl.mechanisms": "it is {sasl.mechanism}",
    "socket.timeout.ms": "it is {request.timeout.ms}",
    "ssl.ca.location": "it is {ssl.truststore.location}",
    "ssl.ca.pem": "it is {ssl.truststore.certificates}",
    "ssl.certificate.location": _PEM_KEYSTORE,
    "ssl.certificate.pem": "it is {ssl.keystore.certificate.chain}",
    "ssl.key.location": _PEM_KEYSTORE,
    "ssl.key.pem": "it is {ssl.keystore.key}",
    "statistics.interval.ms": "`metrics()` returns all figures: leave it out",
    "stats.cb": "`metrics()` returns all figures: leave it out",
    "topic.metadata.refresh.interval.ms": "it is {metadata.max.age.ms}",
}

_OURS = re.compile(r"\{([a-z.]+)\}")


def advice(written: str) -> str | None:
    """What to write instead of another client's option, spelt as ``written`` is: with dots or underscores."""
    found = FOREIGN_NAMES.get(written.replace("_", "."))
    if found is None:
        return None
    dotted = "_" not in written
    return _OURS.sub(lambda ours: ours[1] if dotted else ours[1].replace(".", "_"), found)


def options_named() -> set[str]:
    """Every option of ours that an advice names."""
    return {name for text in FOREIGN_NAMES.values() for name in _OURS.findall(text)}
