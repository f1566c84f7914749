"""The alerts that come with Tidelog, for Prometheus: those that Strimzi has, and a few for what is our own.

Written by ``tidelog metrics dashboards``.
"""

from __future__ import annotations

import json
from typing import NamedTuple


class Alert(NamedTuple):
    """Fires when ``expr`` has held for so long."""

    name: str
    expr: str
    for_s: int
    severity: str
    summary: str


ALERTS = (
    Alert(
        "UnderReplicatedPartitions",
        "kafka_server_replicamanager_underreplicatedpartitions > 0",
        60,
        "warning",
        "{{ $labels.instance }} leads {{ $value }} partitions of which a replica is not in sync: is a "
        "broker down or slow?",
    ),
    Alert(
        "UnderMinIsrPartitionCount",
        "kafka_server_replicamanager_underminisrpartitioncount > 0",
        60,
        "critical",
        "{{ $labels.instance }} refuses writes with acks=all to {{ $value }} partitions: too few replicas "
        "are in sync",
    ),
    Alert(
        "AbnormalControllerState",
        "sum(kafka_controller_kafkacontroller_activecontrollercount) != 1",
        30,
        "critical",
        "There are {{ $value }} controllers, and there should be one",
    ),
    Alert(
        "OfflinePartitions",
        "sum(kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        30,
        "critical",
        "{{ $value }} partitions have no leader, and can be neither written nor read",
    ),
    Alert(
        "OfflineLogDirectoryCount",
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        10,
        "critical",
        "{{ $value }} log directories of {{ $labels.instance }} have failed",
    ),
    Alert(
        "UncleanLeaderElection",
        "increase(kafka_controller_controllerstats_uncleanleaderelections_total[5m]) > 0",
        0,
        "critical",
        "A replica that was not in sync has been made a leader: records may be lost",
    ),
    Alert(
        "LogDirectoryNearlyFull",
        "tidelog_log_directory_free_bytes / tidelog_log_directory_total_bytes < 0.15",
        60,
        "warning",
        "{{ $labels.directory }} of {{ $labels.instance }} has {{ $value | humanizePercentage }} left",
    ),
    Alert(
        "TooLargeConsumerGroupLag",
        "sum by (consumergroup, topic) (kafka_consumergroup_lag_sum) > 1000",
        60,
        "warning",
        "{{ $labels.consumergroup }} is {{ $value }} records behind in {{ $labels.topic }}",
    ),
    Alert(
        "ConsumerGroupLagTooOld",
        "max by (consumergroup, topic) (kafka_consumergroup_lag_seconds) > 300",
        60,
        "warning",
        "{{ $labels.consumergroup }} is {{ $value | humanizeDuration }} behind in {{ $labels.topic }}",
    ),
    Alert(
        "NoMessageForTooLong",
        'sum by (topic) (changes(kafka_server_brokertopicmetrics_messagesin_total{topic!="",'
        'topic!~"__.*"}[10m])) == 0',
        60,
        "warning",
        "Nothing has been written to {{ $labels.topic }} for ten minutes",
    ),
    Alert(
        "BrokerNotReady",
        "tidelog_ready == 0",
        120,
        "warning",
        "{{ $labels.instance }} is not ready: its /ready says why",
    ),
    Alert(
        "BrokerDown",
        "up == 0",
        60,
        "critical",
        "{{ $labels.instance }} does not answer",
    ),
    Alert(
        "EventLoopBusy",
        "kafka_network_socketserver_networkprocessoravgidle_percent < 0.1",
        300,
        "warning",
        "{{ $labels.instance }} has had hardly a pause for minutes: its requests wait for one another",
    ),
    Alert(
        "CertificateExpires",
        "tidelog_tls_certificate_expires_at_timestamp_seconds - time() < 14 * 86400",
        3600,
        "warning",
        "The certificate of {{ $labels.listener }} at {{ $labels.instance }} expires in "
        "{{ $value | humanizeDuration }}",
    ),
    Alert(
        "ZooKeeperSessionLost",
        "tidelog_zookeeper_connected == 0",
        30,
        "critical",
        "{{ $labels.instance }} has no session with ZooKeeper",
    ),
    Alert(
        "PipelineDown",
        "tidelog_pipeline_up == 0",
        60,
        "critical",
        "The query of {{ $labels.pipeline }} at {{ $labels.instance }} does not run",
    ),
    Alert(
        "PipelineFallsBehind",
        "tidelog_pipeline_lag > 1000 and deriv(tidelog_pipeline_lag[10m]) > 0",
        600,
        "warning",
        "{{ $labels.pipeline }} has {{ $value }} records still to read, and they become more",
    ),
    Alert(
        "PipelineDeadLetters",
        "delta(tidelog_pipeline_dead_letters[10m]) > 0",
        0,
        "warning",
        "{{ $labels.pipeline }} could not make sense of {{ $value | humanize }} events: they are in topic "
        "ml_dead_letters, with the reason",
    ),
)


def rules(alerts: tuple[Alert, ...] = ALERTS) -> str:
    """The file that Prometheus reads: YAML, of which JSON's strings are a part."""
    lines = ["groups:", "  - name: tidelog", "    rules:"]
    for alert in alerts:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.for_s}s",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
        ]
    return "\n".join(lines) + "\n"
