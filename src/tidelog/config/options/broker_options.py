"""The table of every broker option that Tidelog honours, with Kafka 4's names, types, defaults and bounds.

``BrokerConfig`` parses ``server.properties`` by it, ``dynamic_config`` answers DescribeConfigs and checks
changes by it, and ``docs/reference/configuration.md`` is printed from it. Options that Kafka has and
Tidelog does not honour are names only, in ``unsupported_options``.
"""

from __future__ import annotations

from tidelog.config.options import listener_options
from tidelog.config.options.authorizer_options import AUTHORIZER_OPTIONS
from tidelog.config.options.cluster_options import CONTROLLER_OPTIONS, REPLICATION_OPTIONS, ZOOKEEPER_OPTIONS
from tidelog.config.options.coordinator_options import (
    CLASSIC_GROUP_OPTIONS,
    CONSUMER_GROUP_OPTIONS,
    OFFSET_OPTIONS,
    TRANSACTION_OPTIONS,
)
from tidelog.config.options.log_options import (
    CLEANER_OPTIONS,
    DIRECTORY_OPTIONS,
    FLUSH_OPTIONS,
    RECORD_OPTIONS,
    RETENTION_OPTIONS,
    SEGMENT_OPTIONS,
)
from tidelog.config.options.network_options import (
    IDENTITY_OPTIONS,
    LISTENER_OPTIONS,
    METRICS_OPTIONS,
    SOCKET_OPTIONS,
)
from tidelog.config.options.sasl_options import (
    KERBEROS_OPTIONS,
    OAUTHBEARER_OPTIONS,
    SASL_OPTIONS,
    TOKEN_OPTIONS,
)
from tidelog.config.options.tls_options import TLS_OPTIONS
from tidelog.config.options.zookeeper_options import PASSWORD_ENCODER_OPTIONS, ZOOKEEPER_SECURITY_OPTIONS
from tidelog.options import ConfigDef, Option, at_least, grouped, option

TOPIC_DEFAULT_OPTIONS: tuple[Option, ...] = (
    option(
        "auto.create.topics.enable",
        "boolean",
        True,
        "Whether a topic comes into being when a client asks for the metadata of one that is not there.",
        importance="high",
    ),
    option(
        "delete.topic.enable",
        "boolean",
        True,
        "Whether topics can be deleted; if not, DeleteTopics is refused.",
        importance="high",
    ),
    option(
        "num.partitions",
        "int",
        1,
        "The number of partitions of a topic that is created without saying it.",
        at_least(1),
    ),
    option(
        "default.replication.factor",
        "int",
        1,
        "The replication factor of a topic that is created without saying it.",
    ),
    option(
        "min.insync.replicas",
        "int",
        1,
        "With acks=all, how many in-sync replicas, the leader included, must be there for a write to be "
        "taken.",
        at_least(1),
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
        importance="high",
        dynamic="cluster-wide",
    ),
)

FETCH_OPTIONS: tuple[Option, ...] = (
    option(
        "fetch.max.bytes",
        "int",
        57671680,
        "The most bytes that one fetch response carries, whatever the client asks for.",
        at_least(1024),
    ),
    option(
        "max.incremental.fetch.session.cache.slots",
        "int",
        1000,
        "How many incremental fetch sessions are remembered.",
        at_least(0),
    ),
    option(
        "max.request.partition.size.limit",
        "int",
        2000,
        "How many partitions one DescribeTopicPartitions response holds at most.",
        at_least(1),
    ),
)

QUOTA_OPTIONS: tuple[Option, ...] = tuple(
    option(name, "int", default, doc, at_least(1), importance="low")
    for name, default, doc in (
        (
            "quota.window.num",
            11,
            "Over how many windows the rates of clients with quotas are measured: all but one of them whole.",
        ),
        ("quota.window.size.seconds", 1, "How long each of these windows is."),
        (
            "controller.quota.window.num",
            11,
            "As many windows' worth of new and deleted partitions a client with a quota may have at once.",
        ),
        ("controller.quota.window.size.seconds", 1, "How long each of these windows is."),
    )
)

PRODUCER_OPTIONS: tuple[Option, ...] = (
    option(
        "producer.id.expiration.ms",
        "int",
        86400000,
        "A partition forgets the sequence numbers of a producer that wrote nothing for this long.",
        at_least(1),
        importance="low",
        dynamic="cluster-wide",
    ),
    option(
        "producer.id.expiration.check.interval.ms",
        "int",
        600000,
        "How often partitions look for producers to forget.",
        at_least(1),
        importance="low",
        internal=True,
    ),
)

INTERNAL_TOPIC_OPTIONS: tuple[Option, ...] = (
    option(
        "offsets.topic.num.partitions",
        "int",
        50,
        "The number of partitions of __consumer_offsets; keep it once the topic exists.",
        at_least(1),
        importance="high",
    ),
    option(
        "offsets.topic.replication.factor",
        "short",
        3,
        "The replication factor of __consumer_offsets; it cannot be created on fewer brokers.",
        at_least(1),
        importance="high",
    ),
    option(
        "offsets.topic.segment.bytes",
        "int",
        104857600,
        "The segment size of __consumer_offsets: small, so that it compacts and loads fast.",
        at_least(1),
        importance="high",
    ),
    option(
        "transaction.state.log.num.partitions",
        "int",
        50,
        "The number of partitions of __transaction_state; keep it once the topic exists.",
        at_least(1),
        importance="high",
    ),
    option(
        "transaction.state.log.replication.factor",
        "short",
        3,
        "The replication factor of __transaction_state; it cannot be created on fewer brokers.",
        at_least(1),
        importance="high",
    ),
    option(
        "transaction.state.log.segment.bytes",
        "int",
        104857600,
        "The segment size of __transaction_state: small, so that it compacts and loads fast.",
        at_least(1),
        importance="high",
    ),
    option(
        "transaction.state.log.min.isr",
        "int",
        2,
        "min.insync.replicas of __transaction_state.",
        at_least(1),
        importance="high",
    ),
)

SUBJECTS: dict[str, tuple[Option, ...]] = {
    "Identity": IDENTITY_OPTIONS,
    "Listeners": LISTENER_OPTIONS,
    "Sockets and connections": SOCKET_OPTIONS,
    "Metrics and request log": METRICS_OPTIONS,
    "TLS": TLS_OPTIONS,
    "Authentication (SASL)": SASL_OPTIONS,
    "Kerberos": KERBEROS_OPTIONS,
    "OAuth tokens": OAUTHBEARER_OPTIONS,
    "Delegation tokens": TOKEN_OPTIONS,
    "Access control": AUTHORIZER_OPTIONS,
    "ZooKeeper security": ZOOKEEPER_SECURITY_OPTIONS,
    "Metadata secrets": PASSWORD_ENCODER_OPTIONS,
    "Topics": TOPIC_DEFAULT_OPTIONS,
    "Log directories": DIRECTORY_OPTIONS,
    "Segments": SEGMENT_OPTIONS,
    "Flushing and checkpoints": FLUSH_OPTIONS,
    "Retention": RETENTION_OPTIONS,
    "Compaction": CLEANER_OPTIONS,
    "Records": RECORD_OPTIONS,
    "Fetching": FETCH_OPTIONS,
    "Producers": PRODUCER_OPTIONS,
    "Quotas": QUOTA_OPTIONS,
    "Internal topics": INTERNAL_TOPIC_OPTIONS,
    "Groups": CLASSIC_GROUP_OPTIONS,
    "Consumer groups (KIP-848)": CONSUMER_GROUP_OPTIONS,
    "Committed offsets": OFFSET_OPTIONS,
    "Transactions": TRANSACTION_OPTIONS,
    "ZooKeeper": ZOOKEEPER_OPTIONS,
    "Controller": CONTROLLER_OPTIONS,
    "Replication": REPLICATION_OPTIONS,
}

BROKER_OPTIONS = ConfigDef(grouped(SUBJECTS))


def option_of(name: str) -> Option | None:
    """The option that an entry sets, for all listeners or, by its prefix, for one; ``None`` if there is
    none."""
    if name in BROKER_OPTIONS:
        return BROKER_OPTIONS[name]
    return next(
        (BROKER_OPTIONS[each] for each in listener_options.bare_names(name) if each in BROKER_OPTIONS), None
    )
