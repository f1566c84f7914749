"""Broker options about identity, listeners, sockets and connections.

Part of the table in ``broker_options``; names, types, defaults and bounds are Kafka 4's.
"""

from __future__ import annotations

from tidelog.options import MAX_INT, Option, at_least, distinct_items, one_of, option

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

IDENTITY_OPTIONS: tuple[Option, ...] = (
    option(
        "node.id",
        "int",
        1,
        "The id of this broker, unique in its cluster. Kafka has no default here and refuses to start "
        "without.",
        at_least(0),
        importance="high",
    ),
    option(
        "broker.id",
        "int",
        -1,
        "The older name of node.id. Each takes the other's value where only one is set; if both are, they "
        "must be equal.",
        importance="high",
    ),
    option(
        "broker.rack",
        "string",
        None,
        "The rack, zone or room this broker stands in, which replica placement and consumers' choice of the "
        "nearest replica go by.",
    ),
)

LISTENER_OPTIONS: tuple[Option, ...] = (
    option(
        "listeners",
        "list",
        ("PLAINTEXT://:9092",),
        "Addresses to accept connections on, each as NAME://HOST:PORT. An empty host or "
        "0.0.0.0 means every interface. Names and ports are unique, except that an IPv4 and an IPv6 "
        "listener may share a port.",
        distinct_items(empty_ok=False),
        importance="high",
    ),
    option(
        "advertised.listeners",
        "list",
        None,
        "The addresses that clients are told to connect to, where they differ from listeners (behind NAT, in "
        "containers). Every name must also be in listeners; 0.0.0.0 cannot be advertised.",
        distinct_items(empty_ok=False, null_ok=True),
        importance="high",
    ),
    option(
        "listener.security.protocol.map",
        "string",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name speaks, as NAME:PROTOCOL pairs: PLAINTEXT, SSL, "
        "SASL_PLAINTEXT or SASL_SSL.",
        importance="low",
    ),
    option(
        "inter.broker.listener.name",
        "string",
        None,
        "The listener that brokers use among themselves. Set this or security.inter.broker.protocol, not "
        "both.",
    ),
    option(
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        "The security protocol between brokers; it also names the listener they use unless "
        "inter.broker.listener.name does.",
        one_of(*SECURITY_PROTOCOLS),
    ),
    option(
        "controller.listener.names",
        "list",
        (),
        "Listeners that a Kafka configuration keeps for its controller quorum. Tidelog has no such quorum "
        "and does not open them, so that a combined-mode server.properties starts unchanged.",
        distinct_items(empty_ok=False),
        importance="high",
    ),
)

SOCKET_OPTIONS: tuple[Option, ...] = (
    option(
        "socket.send.buffer.bytes",
        "int",
        102400,
        "SO_SNDBUF of client connections; -1, and the default as long as nothing is set, keep the operating "
        "system's choice, which grows with need.",
        importance="high",
    ),
    option(
        "socket.receive.buffer.bytes",
        "int",
        102400,
        "SO_RCVBUF of client connections; -1, and the default as long as nothing is set, keep the operating "
        "system's choice, which grows with need.",
        importance="high",
    ),
    option(
        "socket.request.max.bytes",
        "int",
        104857600,
        "The largest request that is read; a connection that announces a larger one is closed.",
        at_least(1),
        importance="high",
    ),
    option(
        "tidelog.request.max.bytes",
        "int",
        16 * 1024 * 1024,
        "The largest request that is neither Produce nor one of another broker; a connection that announces "
        "a larger one is closed before it is received. At most socket.request.max.bytes.",
        at_least(64 * 1024),
        importance="low",
        internal=True,
    ),
    option(
        "socket.listen.backlog.size",
        "int",
        50,
        "How many connections may wait to be accepted on a listener; the system's somaxconn caps it. 4096 "
        "as long as nothing is set.",
        at_least(1),
    ),
    option(
        "queued.max.requests",
        "int",
        500,
        "How many requests may be under way at once, that is, neither answered as soon as they are read nor "
        "waiting for data, replicas or members of a group: changes of metadata, and requests or answers that "
        "list very much. Those beyond it wait, and no more is read from their connections. What brokers ask "
        "of each other does not count.",
        at_least(1),
        importance="high",
    ),
    option(
        "queued.max.request.bytes",
        "long",
        -1,
        "How many bytes of requests may be held in memory before the broker stops reading more from "
        "connections; -1 for no limit, otherwise at least socket.request.max.bytes.",
    ),
    option(
        "connections.max.idle.ms",
        "long",
        600000,
        "A connection that carried nothing for this long is closed; negative for never.",
    ),
    option(
        "max.connections",
        "int",
        MAX_INT,
        "How many client connections the broker holds at most, all listeners together.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "max.connections.per.ip",
        "int",
        MAX_INT,
        "How many connections one address may hold; further ones are closed on arrival. 0 is allowed only "
        "with max.connections.per.ip.overrides.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "max.connections.per.ip.overrides",
        "string",
        "",
        "Exceptions to max.connections.per.ip, as HOST:COUNT pairs, for example 127.0.0.1:200,build-host:10.",
        dynamic="cluster-wide",
    ),
    option(
        "max.connection.creation.rate",
        "int",
        MAX_INT,
        "How many connections a second the broker accepts; the rest wait in the backlog.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "tidelog.loop.step.warn.ms",
        "int",
        100,
        "A step of the broker's event loop that takes longer than this, so that all clients have to wait, is "
        "logged with the function that it was in, one line a second at most; 0 looks for none.",
        at_least(0),
        importance="low",
        internal=True,
    ),
)

METRICS_OPTIONS: tuple[Option, ...] = (
    option(
        "metrics.listeners",
        "list",
        (),
        "Addresses on which the broker tells of itself over HTTP, each as HOST:PORT: /metrics in Prometheus' "
        "and OpenMetrics' text, /live and /ready, who is connected for `tidelog clients` and `tidelog top`. "
        "Nobody has to log in there: name an address that only those can reach who may know, or write "
        "https://HOST:PORT, which has TLS by the ssl options, or those of listener.name.metrics, and asks "
        "for certificates with ssl.client.auth=required. Kafka has no such option.",
        distinct_items(),
        internal=True,
    ),
    option(
        "metric.reporters",
        "list",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Metrics reporters of your own, as Python classes: `package.module:Class`, a subclass of "
        "`tidelog.metrics.reporters.MetricsReporter`. Names of Java's classes have no effect.",
        distinct_items(),
        importance="low",
    ),
    option(
        "kafka.metrics.polling.interval.secs",
        "int",
        10,
        "How often metrics reporters receive all metrics.",
        at_least(1),
        importance="low",
    ),
    option(
        "tidelog.metrics.names",
        "string",
        "classic",
        "Which names figures have: classic ones as the JMX exporter and Strimzi's rules for it give them "
        "(..._messagesin_total), or those of Strimzi's Metrics Reporter (..._messagesinpersec_total).",
        one_of("classic", "reporter"),
        importance="low",
        internal=True,
    ),
    option(
        "tidelog.metrics.max.group.series",
        "int",
        20_000,
        "Of so many committed offsets at most the lag is shown; how many were left out is a figure, too.",
        at_least(0),
        importance="low",
        internal=True,
    ),
    option(
        "tidelog.otlp.endpoint",
        "string",
        "",
        "An OpenTelemetry collector that everything of /metrics is sent to, OTLP over HTTP: "
        "http://HOST:PORT or https://HOST:PORT; where no path is given, it is /v1/metrics. Nothing is sent "
        "without.",
        internal=True,
    ),
    option(
        "tidelog.otlp.headers",
        "password",
        None,
        "Headers for the collector, NAME=VALUE with commas between them, for example "
        "Authorization=Bearer abc.",
        importance="low",
        internal=True,
    ),
    option(
        "tidelog.otlp.interval.ms",
        "int",
        60_000,
        "How often metrics are sent to the collector.",
        at_least(100),
        importance="low",
        internal=True,
    ),
    option(
        "tidelog.otlp.timeout.ms",
        "int",
        10_000,
        "For how long the collector is waited for.",
        at_least(1),
        importance="low",
        internal=True,
    ),
    option(
        "telemetry.max.bytes",
        "int",
        1024 * 1024,
        "How large the metrics may be that a client pushes at once, packed and unpacked.",
        at_least(1),
        importance="low",
    ),
    option(
        "tidelog.client.metrics.max.series",
        "int",
        20_000,
        "So many figures are kept at most of those that clients push; how many were left out is a figure, "
        "too.",
        at_least(0),
        importance="low",
        internal=True,
    ),
    option(
        "tidelog.slow.request.log.ms",
        "long",
        -1,
        "Requests that take longer than this are logged, one line each, with the parts of that time. Time "
        "that a client asked to wait, for records or for other members, does not count. -1 logs none.",
        at_least(-1),
        importance="low",
        dynamic="cluster-wide",
        internal=True,
    ),
)
