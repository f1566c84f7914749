"""Names that other clients have for options: what Tidelog calls the same, or does instead.

kafka-python, aiokafka and confluent-kafka (librdkafka) have names of their own beside Kafka's. They are
refused with Kafka's name; those that Kafka's own clients had before 0.9 are accepted (``old_names``).
``client_config`` asks, for names that no option table has.

Invariant: no name here is one of ours, and every option that an advice names exists; a test checks both.
"""

from __future__ import annotations

import re

_NEGOTIATED = "versions are negotiated with each broker: leave it out"
_CALLBACK_PER_RECORD = "give `on_delivery` to each `send`"
_LOGGING = "Python's logging under `tidelog` says what it does: leave it out"
_PEM_KEYSTORE = "{ssl.keystore.location} is one file with the key and the certificates, PEM or PKCS12"
_NOT_SEEN = "the end of a partition is what `end_offsets` tells: leave it out"
_BYTES_NOT_RECORDS = "{buffer.memory} bounds what is buffered, in bytes"

_KEYTAB_IN_JAAS = "keytab and principal are those of {sasl.jaas.config}"
_NO_PROXY = "proxies are not supported: name brokers that can be reached in {bootstrap.servers}"
_BY_ITSELF = "the client sees to it: leave it out"
_MAPPING_FIRST = "the mapping comes first and has no name, as in `Producer({'linger.ms': 5})`"
_TOPICS = "topics are given to `subscribe`, `assign` and `send`"
_FETCHED_AHEAD = "{fetch.max.bytes} and {max.partition.fetch.bytes} bound what is fetched ahead"

FOREIGN_NAMES: dict[str, str] = {
    # what anybody may write
    "brokers": "it is {bootstrap.servers}",
    "compression": "it is {compression.type}",
    "conf": _MAPPING_FIRST,
    "config": _MAPPING_FIRST,
    "configs": _MAPPING_FIRST,
    "group": "it is {group.id}",
    "hosts": "it is {bootstrap.servers}",
    "options": _MAPPING_FIRST,
    "servers": "it is {bootstrap.servers}",
    "topic": _TOPICS,
    "topics": _TOPICS,
    # kafka-python and aiokafka
    "api.version": _NEGOTIATED,
    "api.version.auto.timeout.ms": _NEGOTIATED,
    "bootstrap.timeout.ms": "each call has its own limit of time: leave it out",
    "default.offset.commit.callback": "give `callback` to `commit_nowait`",
    "enable.incremental.fetch.sessions": _BY_ITSELF,
    "kafka.client": _BY_ITSELF,
    "loop": "the running loop is used: leave it out",
    "max.batch.size": "it is {batch.size}",
    "metric.group.prefix": "`metrics()` returns all figures: leave it out",
    "metrics.enabled": "`metrics()` returns all figures: leave it out",
    "partitioner": "it is {partitioner.class}",
    "proxy.url": _NO_PROXY,
    "rebalance.timeout.ms": "it is {max.poll.interval.ms}",
    "receive.message.max.bytes": _BY_ITSELF,
    "sasl.kerberos.domain.name": "tickets are for the host in {bootstrap.servers}: leave it out",
    "sasl.kerberos.name": "tickets are for {sasl.kerberos.service.name} and the broker's host",
    "sasl.oauth.token.provider": "it is {sasl.login.callback.handler.class}, a function that returns a token",
    "sasl.plain.password": "it is {sasl.password}",
    "sasl.plain.username": "it is {sasl.username}",
    "selector": _BY_ITSELF,
    "socket.options": "{send.buffer.bytes} and {receive.buffer.bytes} are what can be set of sockets",
    "socks5.proxy": _NO_PROXY,
    "ssl.cafile": "it is {ssl.truststore.location}",
    "ssl.certfile": _PEM_KEYSTORE,
    "ssl.check.hostname": "{ssl.endpoint.identification.algorithm} set to '' switches the check off",
    "ssl.ciphers": "it is {ssl.cipher.suites}",
    "ssl.context": "{ssl.truststore.location}, {ssl.keystore.location} and the like say what it would hold",
    "ssl.crlfile": "revoked certificates are not looked up; {ssl.truststore.location} says who is trusted",
    "ssl.keyfile": _PEM_KEYSTORE,
    "ssl.password": "it is {ssl.key.password}",
    # confluent-kafka
    "api.version.request": _NEGOTIATED,
    "broker.version.fallback": _NEGOTIATED,
    "debug": _LOGGING,
    "default.topic.config": "its options stand beside the others",
    "delivery.report.only.error": _CALLBACK_PER_RECORD,
    "enable.auto.offset.store": "set {enable.auto.commit} to false and `commit` what is done",
    "enable.partition.eof": _NOT_SEEN,
    "enable.ssl.certificate.verification": "it cannot be switched off: trust the broker's own authority "
    "with {ssl.truststore.location}",
    "error.cb": "errors are raised, and logged under `tidelog`: leave it out",
    "log.cb": _LOGGING,
    "log.level": _LOGGING,
    "logger": _LOGGING,
    "max.in.flight": "it is {max.in.flight.requests.per.connection}",
    "message.max.bytes": "it is {max.request.size}",
    "message.timeout.ms": "it is {delivery.timeout.ms}",
    "oauth.cb": "it is {sasl.login.callback.handler.class}, a function that returns a token",
    "on.commit": "give `callback` to `commit_nowait`",
    "on.delivery": _CALLBACK_PER_RECORD,
    "queue.buffering.max.kbytes": _BYTES_NOT_RECORDS,
    "queued.max.messages.kbytes": _FETCHED_AHEAD,
    "queued.min.messages": _FETCHED_AHEAD,
    "sasl.kerberos.keytab": _KEYTAB_IN_JAAS,
    "sasl.kerberos.principal": _KEYTAB_IN_JAAS,
    "sasl.mechanisms": "it is {sasl.mechanism}",
    "socket.keepalive.enable": _BY_ITSELF,
    "socket.nagle.disable": _BY_ITSELF,
    "ssl.ca.location": "it is {ssl.truststore.location}",
    "ssl.ca.pem": "it is {ssl.truststore.certificates}",
    "ssl.certificate.location": _PEM_KEYSTORE,
    "ssl.certificate.pem": "it is {ssl.keystore.certificate.chain}",
    "ssl.key.location": _PEM_KEYSTORE,
    "ssl.key.pem": "it is {ssl.keystore.key}",
    "statistics.interval.ms": "`metrics()` returns all figures: leave it out",
    "stats.cb": "`metrics()` returns all figures: leave it out",
    "throttle.cb": _BY_ITSELF,
    # Kafka's clients before 0.9, where the names above do not have it already
    "consumer.id": "brokers give members their ids: leave it out, or see {group.instance.id}",
}

_OURS = re.compile(r"\{([a-z.]+)\}")


def advice(written: str) -> str | None:
    """What to write instead of another client's option, with dots or underscores as in ``written``."""
    found = FOREIGN_NAMES.get(written.replace("_", "."))
    if found is None:
        return None
    dotted = "_" not in written
    return _OURS.sub(lambda ours: ours[1] if dotted else ours[1].replace(".", "_"), found)


def options_named() -> set[str]:
    """Every option of ours that an advice names."""
    return {name for text in FOREIGN_NAMES.values() for name in _OURS.findall(text)}
