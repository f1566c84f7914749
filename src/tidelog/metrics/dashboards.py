"""The dashboards that come with Tidelog, for Grafana: which panels there are, and how they are written down.

Queries ask for names of ``catalog`` alone; ``tests/compat/test_prometheus.py`` puts every one of them to a
real Prometheus. Written by ``tidelog metrics dashboards``.
"""

from __future__ import annotations

import json
from typing import NamedTuple

_RATE = "[1m]"
_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3


class Panel(NamedTuple):
    """One graph: a title, a unit of Grafana's, and queries with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


class Dashboard(NamedTuple):
    """A page of panels."""

    name: str
    title: str
    panels: tuple[Panel, ...]

    @property
    def queries(self) -> list[str]:
        """All that its panels ask for."""
        return [query for panel in self.panels for query, _ in panel.queries]


def _panel(title: str, unit: str, *queries: tuple[str, str]) -> Panel:
    return Panel(title, unit, queries)


def _topic_rate(name: str) -> str:
    return f'sum by (topic) (rate(kafka_server_brokertopicmetrics_{name}_total{{topic!=""}}{_RATE}))'


def _broker_rate(name: str) -> str:
    return f'sum by (instance) (rate(kafka_server_brokertopicmetrics_{name}_total{{topic=""}}{_RATE}))'


def _time(part: str) -> tuple[str, str]:
    return (
        f'max by (request) (kafka_network_requestmetrics_{part}{{quantile="0.99"}})',
        "{{request}}",
    )


_BROKER = "{{instance}}"

BROKERS = Dashboard(
    "brokers",
    "Tidelog: brokers",
    (
        _panel(
            "Active controllers", "none", ("sum(kafka_controller_kafkacontroller_activecontrollercount)", "")
        ),
        _panel("Brokers ready", "none", ("tidelog_ready", _BROKER)),
        _panel(
            "Partitions in trouble",
            "none",
            ("sum(kafka_controller_kafkacontroller_offlinepartitionscount)", "offline"),
            ("sum(kafka_server_replicamanager_underreplicatedpartitions)", "under-replicated"),
            ("sum(kafka_server_replicamanager_underminisrpartitioncount)", "under min.insync.replicas"),
        ),
        _panel("Records in", "cps", (_broker_rate("messagesin"), _BROKER)),
        _panel("Bytes in", "Bps", (_broker_rate("bytesin"), _BROKER)),
        _panel("Bytes out", "Bps", (_broker_rate("bytesout"), _BROKER)),
        _panel(
            "Replication",
            "Bps",
            (_broker_rate("replicationbytesin"), "in " + _BROKER),
            (_broker_rate("replicationbytesout"), "out " + _BROKER),
        ),
        _panel(
            "Requests",
            "reqps",
            (f"sum by (request) (rate(kafka_network_requestmetrics_requests_total{_RATE}))", "{{request}}"),
        ),
        _panel(
            "Errors",
            "cps",
            (
                "sum by (request, error) (rate(kafka_network_requestmetrics_errors_total"
                f'{{error!="NONE"}}{_RATE})) or vector(0)',
                "{{request}} {{error}}",
            ),
        ),
        _panel("Total time, p99", "ms", _time("totaltimems")),
        _panel("Local time, p99", "ms", _time("localtimems")),
        _panel("Remote time, p99", "ms", _time("remotetimems")),
        _panel("Queue time, p99", "ms", _time("requestqueuetimems")),
        _panel("Throttle time, p99", "ms", _time("throttletimems")),
        _panel("Send time, p99", "ms", _time("responsesendtimems")),
        _panel(
            "Time of all produce requests, p99",
            "s",
            (
                "histogram_quantile(0.99, sum by (le) (rate(tidelog_request_duration_seconds_bucket"
                f'{{request="Produce"}}{_RATE})))',
                "produce",
            ),
        ),
        _panel(
            "Event loop: idle",
            "percentunit",
            ("kafka_network_socketserver_networkprocessoravgidle_percent", _BROKER),
        ),
        _panel(
            "Event loop: lag, p99",
            "s",
            (
                "histogram_quantile(0.99, sum by (le, instance) "
                f"(rate(tidelog_event_loop_lag_seconds_bucket{_RATE})))",
                _BROKER,
            ),
        ),
        _panel(
            "Connections",
            "none",
            (
                "sum by (instance, listener) (kafka_server_socket_server_metrics_connection_count)",
                "{{instance}} {{listener}}",
            ),
        ),
        _panel(
            "Clients by software",
            "none",
            (
                "sum by (clientSoftwareName, clientSoftwareVersion) "
                "(kafka_server_socket_server_metrics_connections_software)",
                "{{clientSoftwareName}} {{clientSoftwareVersion}}",
            ),
        ),
        _panel(
            "Requests that wait",
            "none",
            (
                "sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_purgatorysize)",
                "{{delayedOperation}}",
            ),
        ),
        _panel(
            "In-sync replicas",
            "cps",
            (f"sum(rate(kafka_server_replicamanager_isrshrinks_total{_RATE}))", "shrinks"),
            (f"sum(rate(kafka_server_replicamanager_isrexpands_total{_RATE}))", "expands"),
        ),
        _panel("Replica lag", "none", ("kafka_server_replicafetchermanager_maxlag", _BROKER)),
        _panel(
            "Disks: free",
            "percentunit",
            (
                "tidelog_log_directory_free_bytes / tidelog_log_directory_total_bytes",
                "{{instance}} {{directory}}",
            ),
        ),
        _panel("Processor", "percentunit", (f"rate(process_cpu_seconds_total{_RATE})", _BROKER)),
        _panel("Memory", "bytes", ("process_resident_memory_bytes", _BROKER)),
        _panel("Open files", "none", ("process_open_fds", _BROKER)),
    ),
)

TOPICS = Dashboard(
    "topics",
    "Tidelog: topics",
    (
        _panel("Records in", "cps", (_topic_rate("messagesin"), "{{topic}}")),
        _panel("Bytes in", "Bps", (_topic_rate("bytesin"), "{{topic}}")),
        _panel("Bytes out", "Bps", (_topic_rate("bytesout"), "{{topic}}")),
        _panel("Batches", "reqps", (_topic_rate("totalproducerequests"), "{{topic}}")),
        _panel("Reads", "reqps", (_topic_rate("totalfetchrequests"), "{{topic}}")),
        _panel(
            "Refused",
            "cps",
            (_topic_rate("failedproducerequests"), "produce {{topic}}"),
            (_topic_rate("failedfetchrequests"), "fetch {{topic}}"),
        ),
        _panel("Size of the logs", "bytes", ("sum by (topic) (kafka_log_log_size)", "{{topic}}")),
        _panel(
            "Records kept",
            "none",
            (
                "sum by (topic) (kafka_topic_partition_current_offset - kafka_topic_partition_oldest_offset)",
                "{{topic}}",
            ),
        ),
        _panel("Segments", "none", ("sum by (topic) (kafka_log_log_numlogsegments)", "{{topic}}")),
        _panel("Partitions", "none", ("max by (topic) (kafka_topic_partitions)", "{{topic}}")),
        _panel(
            "Under-replicated partitions",
            "none",
            ("sum by (topic) (kafka_cluster_partition_underreplicated)", "{{topic}}"),
        ),
    ),
)

GROUPS = Dashboard(
    "groups",
    "Tidelog: consumer groups",
    (
        _panel("Lag", "none", ("sum by (consumergroup) (kafka_consumergroup_lag_sum)", "{{consumergroup}}")),
        _panel(
            "Lag in seconds",
            "s",
            ("max by (consumergroup) (kafka_consumergroup_lag_seconds)", "{{consumergroup}}"),
        ),
        _panel(
            "Members", "none", ("sum by (consumergroup) (kafka_consumergroup_members)", "{{consumergroup}}")
        ),
        _panel(
            "Records consumed",
            "cps",
            (
                f"sum by (consumergroup) (deriv(kafka_consumergroup_current_offset_sum{_RATE}))",
                "{{consumergroup}}",
            ),
        ),
        _panel(
            "Lag by topic",
            "none",
            (
                "sum by (consumergroup, topic) (kafka_consumergroup_lag_sum)",
                "{{consumergroup}} {{topic}}",
            ),
        ),
        _panel(
            "Furthest behind",
            "none",
            (
                "topk(20, max by (consumergroup, topic, partition) (kafka_consumergroup_lag))",
                "{{consumergroup}} {{topic}}-{{partition}}",
            ),
        ),
        _panel(
            "Groups by state",
            "none",
            ("sum(kafka_coordinator_group_groupmetadatamanager_numgroupsstable)", "stable"),
            ("sum(kafka_coordinator_group_groupmetadatamanager_numgroupsempty)", "empty"),
            ("sum(kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance)", "rebalancing"),
        ),
        _panel(
            "Committed offsets", "none", ("sum(kafka_coordinator_group_groupmetadatamanager_numoffsets)", "")
        ),
    ),
)

_PIPELINE = "{{pipeline}}"


def _of_pipeline(name: str, unit: str = "none", title: str = "") -> Panel:
    return _panel(title, unit, (f"tidelog_pipeline_{name}", _PIPELINE))


PIPELINES = Dashboard(
    "pipelines",
    "Tidelog: pipelines on Spark",
    (
        _of_pipeline("up", title="Running"),
        _panel("Records read", "cps", (f"rate(tidelog_pipeline_input_rows_total{_RATE})", _PIPELINE)),
        _of_pipeline("processed_rows_per_second", "cps", "Records worked off per second of work"),
        _of_pipeline("batch_duration_seconds", "s", "Time of a micro-batch"),
        _panel(
            "Where the time goes",
            "s",
            ("tidelog_pipeline_batch_phase_seconds", "{{pipeline}} {{phase}}"),
        ),
        _panel(
            "Since the last micro-batch",
            "s",
            ("time() - tidelog_pipeline_last_batch_timestamp_seconds", _PIPELINE),
        ),
        _of_pipeline("lag", title="Lag of the group"),
        _of_pipeline("offsets_behind_latest", title="Left over by the last micro-batch"),
        _of_pipeline("watermark_delay_seconds", "s", "Watermark behind the clock"),
        _of_pipeline("state_rows", title="Rows of state"),
        _of_pipeline("state_memory_bytes", "bytes", "Memory of Spark's state"),
        _of_pipeline("dead_letters", title="Dead letters"),
        _panel(
            "Left out",
            "cps",
            (f"rate(tidelog_pipeline_late_events_total{_RATE})", "late {{pipeline}}"),
            (f"rate(tidelog_pipeline_dropped_searches_total{_RATE})", "given up {{pipeline}}"),
        ),
        _panel(
            "Malformed records by reason",
            "cps",
            (f"rate(tidelog_pipeline_malformed_reasons_total{_RATE})", "{{pipeline}} {{reason}}"),
        ),
        _panel(
            "Events that came twice",
            "cps",
            (f"rate(tidelog_pipeline_duplicated_events_total{_RATE})", _PIPELINE),
        ),
        _panel(
            "Fields without a value",
            "percentunit",
            ("tidelog_pipeline_field_null_ratio", "{{pipeline}} {{field}}"),
        ),
    ),
)

ALL = (BROKERS, TOPICS, GROUPS, PIPELINES)


def grafana(dashboard: Dashboard) -> str:
    """The file that Grafana imports."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": number + 1,
            "title": panel.title,
            "type": "timeseries",
            "datasource": source,
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "gridPos": {
                "x": number % _PER_ROW * _WIDTH,
                "y": number // _PER_ROW * _HEIGHT,
                "w": _WIDTH,
                "h": _HEIGHT,
            },
            "targets": [
                {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend, "datasource": source}
                for place, (query, legend) in enumerate(panel.queries)
            ],
        }
        for number, panel in enumerate(dashboard.panels)
    ]
    page = {
        "uid": f"tidelog-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["tidelog", "kafka"],
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "schemaVersion": 39,
        "templating": {
            "list": [{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }
    return json.dumps(page, indent=2) + "\n"
