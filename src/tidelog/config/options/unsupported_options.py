"""Names of Kafka's broker options that Tidelog does not honour, by the reason why.

A ``server.properties`` written for Kafka (3.9 with ZooKeeper, or 4) starts unchanged: the options of this
list that it sets are named in one warning, and their values are not looked at. Not so those that protect:
a broker that ignored them would be open while its operator believes it to be closed, so that it does not
start (``unmet_protection``). A star marks those that Kafka lets an administrator change while the broker
runs: such a change is kept and has no effect, or is refused where it protects.
Whoever makes the broker honour one of them moves its name from here to ``broker_options``; a test keeps
the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.config.options.listener_options import PREFIX, bare_names


class UnsupportedOptions(NamedTuple):
    """A group of option names and why they have no effect."""

    subject: str
    reason: str
    names: tuple[str, ...]
    dynamic: frozenset[str]
    protects: bool
    """Whether a broker that ignores them is less safe than its operator believes."""


def _group(subject: str, reason: str, starred: str, *, protects: bool = False) -> UnsupportedOptions:
    words = starred.split()
    names = tuple(word.rstrip("*") for word in words)
    dynamic = frozenset(word[:-1] for word in words if word.endswith("*"))
    return UnsupportedOptions(subject, reason, names, dynamic, protects)


UNSUPPORTED: tuple[UnsupportedOptions, ...] = (
    _group(
        "Security",
        "What of security this release does not have; classes and providers of the JVM cannot be used. A "
        "broker whose configuration sets one of these does not start, unless the value switches protection "
        "off or is what Java does by itself.",
        """
        delegation.token.master.key early.start.listeners principal.builder.class*
        sasl.client.callback.handler.class sasl.login.class
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds*
        sasl.login.refresh.min.period.seconds* sasl.login.refresh.window.factor*
        sasl.login.refresh.window.jitter* sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.mechanism.controller.protocol
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class security.providers
        ssl.engine.factory.class* ssl.keymanager.algorithm* ssl.provider* ssl.trustmanager.algorithm*
        """,
        protects=True,
    ),
    _group(
        "Renewal of Kerberos tickets",
        "A broker's tickets come from its keytab, and Kerberos' library fetches new ones by itself when half "
        "of their time is over; kinit is never run.",
        """
        sasl.kerberos.kinit.cmd* sasl.kerberos.min.time.before.relogin* sasl.kerberos.ticket.renew.jitter*
        sasl.kerberos.ticket.renew.window.factor*
        """,
    ),
    _group(
        "Random numbers",
        "OpenSSL has its own generator.",
        "ssl.secure.random.implementation*",
    ),
    _group(
        "ZooKeeper security",
        "Whether a certificate of ZooKeeper's was revoked is not looked up. A broker whose configuration "
        "sets one of these does not start, unless the value switches it off.",
        """
        zookeeper.ssl.crl.enable zookeeper.ssl.ocsp.enable
        """,
        protects=True,
    ),
    _group(
        "ZooKeeper",
        "Nothing migrates to a controller quorum; requests to ZooKeeper are not limited in number.",
        """
        zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
        zookeeper.metadata.migration.min.batch.size zookeeper.sync.time.ms
        """,
    ),
    _group(
        "Controller quorum",
        "There is no controller quorum: clusters are coordinated by ZooKeeper, a broker alone by itself.",
        """
        broker.heartbeat.interval.ms broker.session.timeout.ms config.providers*
        controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
        controller.quorum.append.linger.ms controller.quorum.auto.join.enable
        controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
        controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
        controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
        controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
        eligible.leader.replicas.enable
        initial.broker.registration.timeout.ms internal.metadata.delete.delay.millis
        internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
        metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
        metadata.log.segment.bytes metadata.log.segment.min.bytes metadata.log.segment.ms
        metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms process.roles
        server.max.startup.time.ms unclean.leader.election.interval.ms unstable.api.versions.enable
        unstable.feature.versions.enable
        """,
    ),
    _group(
        "Threads and buffers of the coordinators",
        "Coordinators run on the broker's loop: there are no threads, lingering or buffers to size, and logs "
        "are loaded in chunks that are small enough to hold nobody up; a commit is acknowledged by all "
        "in-sync replicas, and the coordinator is always the new one.",
        """
        group.consumer.assignor.offload.enable group.coordinator.append.linger.ms
        group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes*
        group.coordinator.new.enable group.coordinator.threads offsets.commit.required.acks
        offsets.load.buffer.size transaction.state.log.load.buffer.size
        """,
    ),
    _group(
        "Share groups and streams groups",
        "The broker serves classic and consumer groups.",
        """
        group.share.assignment.interval.ms* group.share.assignor.offload.enable group.share.assignors
        group.share.delivery.count.limit group.share.enable group.share.heartbeat.interval.ms
        group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
        group.share.max.delivery.count.limit group.share.max.groups group.share.max.heartbeat.interval.ms
        group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
        group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
        group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
        group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
        group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
        group.share.partition.max.record.locks group.share.persister.class.name
        group.share.record.lock.duration.ms group.share.session.timeout.ms
        group.streams.assignment.interval.ms* group.streams.assignor.offload.enable
        group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
        group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms
        group.streams.max.session.timeout.ms group.streams.max.size group.streams.max.standby.replicas
        group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
        group.streams.min.session.timeout.ms group.streams.num.standby.replicas
        group.streams.session.timeout.ms share.coordinator.append.linger.ms
        share.coordinator.cached.buffer.max.bytes* share.coordinator.cold.partition.snapshot.interval.ms
        share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
        share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
        share.coordinator.threads share.coordinator.write.timeout.ms
        share.fetch.purgatory.purge.interval.requests
        """,
    ),
    _group(
        "Tiered storage",
        "Segments stay on local disk.",
        """
        follower.fetch.last.tiered.offset.enable* remote.fetch.max.wait.ms*
        remote.list.offsets.request.timeout.ms* remote.log.index.file.cache.total.size.bytes*
        remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size*
        remote.log.manager.copy.max.bytes.per.second* remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size*
        remote.log.manager.fetch.max.bytes.per.second* remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size*
        remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
        remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
        remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
        remote.log.reader.max.pending.tasks remote.log.reader.threads* remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
        remote.log.storage.system.enable
        """,
    ),
    _group(
        "Replication",
        "Each leader has one fetch loop, and one task moves each log.",
        """
        inter.broker.protocol.version num.replica.alter.log.dirs.threads num.replica.fetchers*
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
        """,
    ),
    _group(
        "Quotas",
        "Defaults are set as quotas of the default client; classes of the JVM cannot be used; moves between "
        "log directories keep to their rate at any moment, without windows.",
        """
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
        client.quota.callback.class quota.consumer.default quota.producer.default
        """,
    ),
    _group(
        "Metrics",
        "Metrics are served over HTTP (metrics.listeners), sent over OTLP (tidelog.otlp.endpoint) or given "
        "to Python classes (metric.reporters); no Java class can be loaded to report them.",
        """
        auto.include.jmx.reporter kafka.metrics.reporters metrics.num.samples metrics.recording.level
        metrics.sample.window.ms
        """,
    ),
    _group(
        "Threads and purgatories",
        "One event loop serves every connection, waiting requests are futures, and one worker process "
        "compacts one log at a time: there are no such threads or lists.",
        """
        background.threads* delete.records.purgatory.purge.interval.requests
        fetch.purgatory.purge.interval.requests log.cleaner.threads* num.io.threads* num.network.threads*
        producer.purgatory.purge.interval.requests
        """,
    ),
    _group(
        "Other",
        "Names of older releases, plug-ins written in Java, and limits that do not apply.",
        """
        alter.config.policy.class.name cordoned.log.dirs* create.topic.policy.class.name
        kafka.csv.metrics.reporter.enabled log.dir.failure.timeout.ms log.initial.task.delay.ms
        log.message.downconversion.enable log.message.format.version
        log.message.timestamp.difference.max.ms
        """,
    ),
)

KNOWN_UNSUPPORTED: frozenset[str] = frozenset(name for group in UNSUPPORTED for name in group.names)

DYNAMIC_UNSUPPORTED: frozenset[str] = frozenset(name for group in UNSUPPORTED for name in group.dynamic)
"""Those that Kafka takes dynamically."""

PREFIXES = (
    "listener.name.",
    "authorizer.zookeeper.",
    "config.providers.",
    "rlmm.config.",
    "rsm.config.",
    "kafka.csv.metrics.",
)
"""Families of options whose names a configuration makes up itself."""

_PROTECTING: frozenset[str] = frozenset(
    name for group in UNSUPPORTED if group.protects for name in group.names
)

_OFF: dict[str, str] = {
    "ssl.keymanager.algorithm": "sunx509",
    "ssl.trustmanager.algorithm": "pkix",
    "zookeeper.ssl.crl.enable": "false",
    "zookeeper.ssl.ocsp.enable": "false",
}
"""Values that ask for no protection."""


def is_unsupported(name: str) -> bool:
    """Whether ``name`` is an option of Kafka's that has no effect here."""
    return name in KNOWN_UNSUPPORTED or name.startswith(PREFIXES)


def is_protection(name: str, value: str) -> bool:
    """Whether an entry asks for protection that there is not, for all listeners or for one."""
    if not value.strip():
        return False
    if name.startswith(PREFIX):
        return any(is_protection(each, value) for each in bare_names(name))
    return name in _PROTECTING and value.strip().lower() != _OFF.get(name)


def unmet_protection(entries: Mapping[str, str]) -> Iterator[str]:
    """A sentence about the entries that ask for protection that there is not; none if all is well."""
    names = sorted(name for name, value in entries.items() if is_protection(name, value))
    if names:
        yield (
            f"{', '.join(names)}: this release cannot honour what these ask for, and does not run as if it "
            "did. Remove the options to run without that protection, or stay with Apache Kafka for this "
            "cluster"
        )
