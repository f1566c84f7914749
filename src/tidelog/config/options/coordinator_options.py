"""Broker options of the group and transaction coordinators, with Kafka 4's names, types, defaults and bounds.

Part of the table in ``broker_options``; rules that span several of them are in ``coordinator_rules``. A
group may have its own value of some of them: see ``group_configs``. The options of the internal topics
themselves (partitions, replication) are in ``broker_options``.
"""

from __future__ import annotations

from tidelog.options import MAX_INT, Option, at_least, distinct_items, matching, option

MIGRATION_POLICIES = ("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")
GROUP_TYPES = ("consumer", "classic", "share", "streams")

CLASSIC_GROUP_OPTIONS: tuple[Option, ...] = (
    option(
        "group.min.session.timeout.ms",
        "int",
        6000,
        "The shortest session timeout that a member of a classic group may ask for.",
    ),
    option(
        "group.max.session.timeout.ms",
        "int",
        1800000,
        "The longest session timeout that a member of a classic group may ask for.",
    ),
    option(
        "group.initial.rebalance.delay.ms",
        "int",
        3000,
        "How long the first rebalance of an empty classic group waits for more members to join.",
    ),
    option(
        "group.max.size",
        "int",
        MAX_INT,
        "How many members a classic group holds at most.",
        at_least(1),
    ),
    option(
        "group.coordinator.rebalance.protocols",
        "list",
        ("classic", "consumer", "streams"),
        "The group protocols that are served: classic always; without consumer, ConsumerGroupHeartbeat is "
        "refused. Streams and share groups are not served, named here or not.",
        distinct_items(of=GROUP_TYPES, empty_ok=False),
    ),
)

CONSUMER_GROUP_OPTIONS: tuple[Option, ...] = (
    option(
        "group.consumer.session.timeout.ms",
        "int",
        45000,
        "A member of a consumer group (KIP-848) that is silent for this long is taken for dead.",
        at_least(1),
    ),
    option(
        "group.consumer.min.session.timeout.ms",
        "int",
        45000,
        "The least that consumer.session.timeout.ms of a single group counts for.",
        at_least(1),
    ),
    option(
        "group.consumer.max.session.timeout.ms",
        "int",
        60000,
        "The most that consumer.session.timeout.ms of a single group counts for.",
        at_least(1),
    ),
    option(
        "group.consumer.heartbeat.interval.ms",
        "int",
        5000,
        "How often the members of a consumer group are told to heartbeat.",
        at_least(1),
    ),
    option(
        "group.consumer.min.heartbeat.interval.ms",
        "int",
        5000,
        "The least that consumer.heartbeat.interval.ms of a single group counts for.",
        at_least(1),
    ),
    option(
        "group.consumer.max.heartbeat.interval.ms",
        "int",
        15000,
        "The most that consumer.heartbeat.interval.ms of a single group counts for.",
        at_least(1),
    ),
    option(
        "group.consumer.max.size",
        "int",
        MAX_INT,
        "How many members a consumer group holds at most.",
        at_least(1),
    ),
    option(
        "group.consumer.assignors",
        "list",
        ("uniform", "range"),
        "The assignors that a consumer group may use, of uniform and range; the first serves members that "
        "ask for none.",
        distinct_items(empty_ok=False),
    ),
    option(
        "group.consumer.migration.policy",
        "string",
        "bidirectional",
        "Whether a group that has members may turn from the classic to the consumer protocol (upgrade), back "
        "(downgrade), both (bidirectional) or neither (disabled). An empty group always may.",
        matching(
            f"one of {', '.join(MIGRATION_POLICIES)}, in any case",
            f"String must be one of (case insensitive): {', '.join(MIGRATION_POLICIES)}",
            lambda text: text.upper() in MIGRATION_POLICIES,
        ),
    ),
    option(
        "group.consumer.assignment.interval.ms",
        "int",
        1000,
        "The least time between two assignments that a consumer group computes.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "group.consumer.min.assignment.interval.ms",
        "int",
        0,
        "The least that consumer.assignment.interval.ms of a single group counts for.",
        at_least(0),
    ),
    option(
        "group.consumer.max.assignment.interval.ms",
        "int",
        15000,
        "The most that consumer.assignment.interval.ms of a single group counts for.",
        at_least(0),
    ),
    option(
        "group.consumer.regex.refresh.interval.ms",
        "int",
        600000,
        "How often the topics that match a group's regular expressions are looked up anew.",
        at_least(10000),
        internal=True,
    ),
)

OFFSET_OPTIONS: tuple[Option, ...] = (
    option(
        "offset.metadata.max.bytes",
        "int",
        4096,
        "How much text of its own a client may store with a committed offset.",
        importance="high",
    ),
    option(
        "offsets.retention.minutes",
        "int",
        10080,
        "How long committed offsets are kept once nobody uses them: after the group has become empty, after "
        "it stopped subscribing to the topic, or, without a subscription, after the last commit.",
        at_least(1),
        importance="high",
    ),
    option(
        "offsets.retention.check.interval.ms",
        "long",
        600000,
        "How often offsets whose retention has passed are looked for.",
        at_least(1),
        importance="high",
    ),
    option(
        "offsets.commit.timeout.ms",
        "int",
        5000,
        "How long a write of the group coordinator waits for the in-sync replicas before it fails.",
        at_least(1),
        importance="high",
    ),
    option(
        "offsets.topic.compression.codec",
        "int",
        0,
        "How batches in __consumer_offsets are compressed: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        importance="high",
    ),
)

TRANSACTION_OPTIONS: tuple[Option, ...] = (
    option(
        "transaction.max.timeout.ms",
        "int",
        900000,
        "The longest transaction timeout that a producer may ask for.",
        at_least(1),
        importance="high",
    ),
    option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "int",
        10000,
        "How often transactions past their timeout are looked for and aborted.",
        at_least(1),
        importance="low",
    ),
    option(
        "transactional.id.expiration.ms",
        "int",
        604800000,
        "A transactional id that was not used for this long is forgotten, unless its transaction is open.",
        at_least(1),
        importance="high",
    ),
    option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "int",
        3600000,
        "How often transactional ids to forget are looked for.",
        at_least(1),
        importance="low",
    ),
    option(
        "transaction.two.phase.commit.enable",
        "boolean",
        False,
        "Whether a producer may take part in two-phase commits, whose transactions never time out.",
        importance="low",
    ),
    option(
        "transaction.partition.verification.enable",
        "boolean",
        True,
        "Whether a partition asks the transaction coordinator, before a producer's first write of a "
        "transaction, that it is part of it (KIP-890).",
        importance="low",
        dynamic="cluster-wide",
    ),
    option(
        "add.partitions.to.txn.retry.backoff.ms",
        "int",
        20,
        "How long a broker waits before it asks again to add a partition to a transaction while the one "
        "before is being completed.",
        at_least(1),
        importance="high",
    ),
    option(
        "add.partitions.to.txn.retry.backoff.max.ms",
        "int",
        100,
        "For how long in all a broker goes on asking to add a partition to a transaction.",
        at_least(0),
        importance="high",
    ),
)
