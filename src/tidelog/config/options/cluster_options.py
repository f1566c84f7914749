"""Broker options that matter in a cluster: ZooKeeper, the controller, replication. Names and defaults are
Kafka 3.9's."""

from __future__ import annotations

from tidelog.options import MAX_LONG, Option, at_least, one_of, option

ONLY_WITH_ZOOKEEPER = frozenset(
    {
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "leader.imbalance.per.broker.percentage",
        "reserved.broker.max.id",
        "zookeeper.connect",
        "zookeeper.connection.timeout.ms",
        "zookeeper.session.timeout.ms",
        "password.encoder.cipher.algorithm",
        "password.encoder.iterations",
        "password.encoder.key.length",
        "password.encoder.keyfactory.algorithm",
        "password.encoder.old.secret",
        "password.encoder.secret",
        "zookeeper.clientCnxnSocket",
        "zookeeper.set.acl",
        "zookeeper.ssl.cipher.suites",
        "zookeeper.ssl.client.enable",
        "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.endpoint.identification.algorithm",
        "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.keystore.type",
        "zookeeper.ssl.protocol",
        "zookeeper.ssl.truststore.location",
        "zookeeper.ssl.truststore.password",
        "zookeeper.ssl.truststore.type",
    }
)
"""What Kafka 4 has no more: a broker that stands alone lists it only where it was given."""

DYNAMIC_ONLY = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""What Kafka, with ZooKeeper or without, keeps in a table of its own and lists only where it was given."""

REPLICA_SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)

ZOOKEEPER_OPTIONS: tuple[Option, ...] = (
    option(
        "zookeeper.connect",
        "string",
        None,
        "The ensemble that coordinates the cluster, as host:port,host:port/chroot. Without it the broker "
        "stands alone and keeps its metadata in its first log directory.",
        importance="high",
    ),
    option(
        "zookeeper.session.timeout.ms",
        "int",
        18000,
        "How long a broker may be silent before ZooKeeper, and so the cluster, takes it for dead.",
        importance="high",
    ),
    option(
        "zookeeper.connection.timeout.ms",
        "int",
        None,
        "How long a starting broker waits for ZooKeeper; by default zookeeper.session.timeout.ms.",
        importance="high",
    ),
    option(
        "broker.id.generation.enable",
        "boolean",
        True,
        "Whether a broker without an id gets one from ZooKeeper, above reserved.broker.max.id.",
    ),
    option(
        "reserved.broker.max.id",
        "int",
        1000,
        "The largest broker id that is given by hand; generated ones are above it.",
        at_least(0),
    ),
)

CONTROLLER_OPTIONS: tuple[Option, ...] = (
    option(
        "auto.leader.rebalance.enable",
        "boolean",
        True,
        "Whether the controller gives leadership back to preferred replicas from time to time.",
        importance="high",
    ),
    option(
        "leader.imbalance.check.interval.seconds",
        "long",
        300,
        "How often it looks whether to.",
        at_least(1),
        importance="high",
    ),
    option(
        "leader.imbalance.per.broker.percentage",
        "int",
        10,
        "Of how many of its partitions in a hundred a broker must have lost the lead for that.",
        importance="high",
    ),
    option(
        "controlled.shutdown.enable",
        "boolean",
        True,
        "Whether a broker that stops hands over what it leads first.",
    ),
    option(
        "controlled.shutdown.max.retries",
        "int",
        3,
        "How often it tries that before it stops all the same.",
    ),
    option(
        "controlled.shutdown.retry.backoff.ms",
        "long",
        5000,
        "How long it waits between these tries.",
    ),
    option(
        "controller.socket.timeout.ms",
        "int",
        30000,
        "How long a request between the controller and a broker may take.",
    ),
    option(
        "request.timeout.ms",
        "int",
        30000,
        "How long the controller waits for a broker's answer before it asks again; no longer than "
        "controller.socket.timeout.ms.",
        importance="high",
    ),
    option(
        "control.plane.listener.name",
        "string",
        None,
        "The listener that the controller's requests come in by, apart from those of clients and followers.",
        importance="high",
    ),
)

REPLICATION_OPTIONS: tuple[Option, ...] = (
    option(
        "replica.lag.time.max.ms",
        "long",
        30000,
        "How long a follower may be behind the end of its leader's log and still be in sync.",
        importance="high",
    ),
    option(
        "replica.fetch.max.bytes",
        "int",
        1048576,
        "How much a follower fetches of one partition at a time; a larger batch comes all the same.",
        at_least(0),
    ),
    option(
        "replica.fetch.response.max.bytes",
        "int",
        10485760,
        "How much a follower fetches at a time in all.",
        at_least(0),
    ),
    option(
        "replica.fetch.min.bytes",
        "int",
        1,
        "How much there must be for a fetch to be answered before replica.fetch.wait.max.ms.",
        importance="high",
    ),
    option(
        "replica.fetch.wait.max.ms",
        "int",
        500,
        "How long a leader lets a fetch wait for more. Less than replica.lag.time.max.ms, or quiet "
        "partitions lose their replicas.",
        importance="high",
    ),
    option(
        "replica.fetch.backoff.ms",
        "int",
        1000,
        "How long a follower waits after a fetch that failed.",
        at_least(0),
    ),
    option(
        "replica.socket.timeout.ms",
        "int",
        30000,
        "How long a fetch of a follower may take; at least replica.fetch.wait.max.ms.",
        importance="high",
    ),
    option(
        "replica.socket.receive.buffer.bytes",
        "int",
        65536,
        "SO_RCVBUF of followers' connections; -1, and the default as long as nothing is set, keep the "
        "operating system's choice, which grows with need.",
        importance="high",
    ),
    option(
        "replica.selector.class",
        "string",
        None,
        "Where leaders send consumers to read: with RackAwareReplicaSelector to an in-sync follower whose "
        "broker.rack is the consumer's client.rack (KIP-392); otherwise nowhere.",
        one_of(*REPLICA_SELECTORS),
    ),
    option(
        "leader.replication.throttled.rate",
        "long",
        MAX_LONG,
        "How many bytes a second this broker sends, as leader, of the replicas that topics list in "
        "leader.replication.throttled.replicas; those in sync are not slowed.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "follower.replication.throttled.rate",
        "long",
        MAX_LONG,
        "How many bytes a second this broker fetches, as follower, of the replicas that topics list in "
        "follower.replication.throttled.replicas; those in sync are not slowed.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "long",
        MAX_LONG,
        "How many bytes a second each move of a log to another log directory copies.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "replication.quota.window.num",
        "int",
        11,
        "Over how many windows the rates of throttled replication are measured.",
        at_least(1),
        importance="low",
    ),
    option(
        "replication.quota.window.size.seconds",
        "int",
        1,
        "How long each of these windows is.",
        at_least(1),
        importance="low",
    ),
)
