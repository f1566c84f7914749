"""Every figure that a broker shows, declared once; ``docs/reference/metrics.md`` is written from here.

``SECTIONS`` puts them in order. Those that begin with ``tidelog_`` are our own, all others bear names that
dashboards for Kafka ask for.
"""

from __future__ import annotations

from tidelog.metrics.metric import Metric, counter, gauge, histogram, meter, percent

# -- topics -----------------------------------------------------------------------------------------------
_BTM = "kafka_server_brokertopicmetrics_"
_PER_TOPIC = " With the label topic for one topic, without it for all."
MESSAGES_IN = meter(f"{_BTM}messagesin_total", "Records appended by leaders here." + _PER_TOPIC, "topic")
BYTES_IN = meter(f"{_BTM}bytesin_total", "Bytes of records appended by leaders here." + _PER_TOPIC, "topic")
BYTES_OUT = meter(f"{_BTM}bytesout_total", "Bytes of records sent to consumers." + _PER_TOPIC, "topic")
BYTES_REJECTED = meter(
    f"{_BTM}bytesrejected_total",
    "Bytes of batches refused because they were too large." + _PER_TOPIC,
    "topic",
)
PRODUCE_REQUESTS = meter(
    f"{_BTM}totalproducerequests_total", "Batches that producers sent, taken or not." + _PER_TOPIC, "topic"
)
FETCH_REQUESTS = meter(
    f"{_BTM}totalfetchrequests_total", "Reads of partitions for fetch requests." + _PER_TOPIC, "topic"
)
FAILED_PRODUCE = meter(
    f"{_BTM}failedproducerequests_total",
    "Batches refused, other than for want of a leader or for their size." + _PER_TOPIC,
    "topic",
)
FAILED_FETCH = meter(
    f"{_BTM}failedfetchrequests_total",
    "Reads that failed, other than for want of a leader or of that offset." + _PER_TOPIC,
    "topic",
)
REPLICATION_IN = meter(
    f"{_BTM}replicationbytesin_total", "Bytes of records that followers here fetched." + _PER_TOPIC, "topic"
)
REPLICATION_OUT = meter(
    f"{_BTM}replicationbytesout_total", "Bytes of records sent to followers." + _PER_TOPIC, "topic"
)
REASSIGNMENT_IN = meter(
    f"{_BTM}reassignmentbytesin_total",
    "Of replicationbytesin what went into replicas that a reassignment adds." + _PER_TOPIC,
    "topic",
)
REASSIGNMENT_OUT = meter(
    f"{_BTM}reassignmentbytesout_total",
    "Of replicationbytesout what went to replicas that a reassignment adds." + _PER_TOPIC,
    "topic",
)
PRODUCE_CONVERSIONS = meter(
    f"{_BTM}producemessageconversions_total",
    "Records converted from an old format: none, old formats are not taken." + _PER_TOPIC,
    "topic",
)
FETCH_CONVERSIONS = meter(
    f"{_BTM}fetchmessageconversions_total",
    "Records converted to an old format: none, old formats are not given." + _PER_TOPIC,
    "topic",
)

# -- replicas ---------------------------------------------------------------------------------------------
_RM = "kafka_server_replicamanager_"
LEADER_COUNT = gauge(f"{_RM}leadercount", "Partitions that this broker leads.")
PARTITION_COUNT = gauge(f"{_RM}partitioncount", "Partitions that have a replica here.")
UNDER_REPLICATED = gauge(
    f"{_RM}underreplicatedpartitions", "Partitions led here of which a replica is not in sync."
)
UNDER_MIN_ISR = gauge(
    f"{_RM}underminisrpartitioncount",
    "Partitions led here with fewer replicas in sync than min.insync.replicas asks for.",
)
AT_MIN_ISR = gauge(
    f"{_RM}atminisrpartitioncount",
    "Partitions led here with just as many replicas in sync as min.insync.replicas asks for.",
)
OFFLINE_REPLICAS = gauge(f"{_RM}offlinereplicacount", "Replicas lost with a log directory.")
REASSIGNING = gauge(f"{_RM}reassigningpartitions", "Partitions led here that are being reassigned.")
PRODUCER_IDS = gauge(f"{_RM}produceridcount", "Producers that the logs here remember.")
ISR_SHRINKS = meter(
    f"{_RM}isrshrinks_total", "Times that a leader here had a replica put out of the in-sync ones."
)
ISR_EXPANDS = meter(
    f"{_RM}isrexpands_total", "Times that a leader here had a replica taken into the in-sync ones."
)
FAILED_ISR_UPDATES = meter(
    f"{_RM}failedisrupdates_total", "Changes of in-sync replicas that the controller refused."
)
_P = "kafka_cluster_partition_"
P_UNDER_MIN_ISR = gauge(
    f"{_P}underminisr", "1 if fewer are in sync than min.insync.replicas.", "topic", "partition"
)
P_AT_MIN_ISR = gauge(
    f"{_P}atminisr", "1 if just as many are in sync as min.insync.replicas.", "topic", "partition"
)
P_REPLICAS = gauge(f"{_P}replicascount", "Replicas of a partition led here.", "topic", "partition")
P_IN_SYNC = gauge(
    f"{_P}insyncreplicascount", "Replicas in sync of a partition led here.", "topic", "partition"
)
P_UNDER_REPLICATED = gauge(f"{_P}underreplicated", "1 if a replica is not in sync.", "topic", "partition")
MAX_LAG = gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "How many records the replica here that is furthest behind its leader lacks.",
    "clientId",
)
FETCHER_LAG = gauge(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "How many records a replica here lacks, as of its last fetch.",
    "clientId",
    "topic",
    "partition",
)

# -- controller -------------------------------------------------------------------------------------------
_C = "kafka_controller_kafkacontroller_"
ACTIVE_CONTROLLER = gauge(f"{_C}activecontrollercount", "1 on the broker that is the controller; 1 in all.")
_CONTROLLER_ONLY = " As the controller knows it, 0 on all others."
OFFLINE_PARTITIONS = gauge(f"{_C}offlinepartitionscount", "Partitions without a leader." + _CONTROLLER_ONLY)
GLOBAL_TOPICS = gauge(f"{_C}globaltopiccount", "Topics of the cluster." + _CONTROLLER_ONLY)
GLOBAL_PARTITIONS = gauge(f"{_C}globalpartitioncount", "Partitions of the cluster." + _CONTROLLER_ONLY)
IMBALANCE = gauge(
    f"{_C}preferredreplicaimbalancecount",
    "Partitions that another than their preferred replica leads." + _CONTROLLER_ONLY,
)
ACTIVE_BROKERS = gauge(f"{_C}activebrokercount", "Brokers that are there." + _CONTROLLER_ONLY)
FENCED_BROKERS = gauge(f"{_C}fencedbrokercount", "Brokers that are fenced: none, there is no such state.")
TOPICS_TO_DELETE = gauge(f"{_C}topicstodeletecount", "Topics that are being deleted." + _CONTROLLER_ONLY)
REPLICAS_TO_DELETE = gauge(f"{_C}replicastodeletecount", "Replicas of these." + _CONTROLLER_ONLY)
UNCLEAN_ELECTIONS = meter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "Elections of a leader that was not in sync: records may be lost.",
)
LEADER_ELECTIONS = gauge(
    "kafka_controller_controllerstats_leaderelectionrateandtimems",
    "How long elections of leaders took, in milliseconds.",
    "quantile",
)
LEADER_ELECTIONS_COUNT = counter(
    "kafka_controller_controllerstats_leaderelectionrateandtimems_count", "How many there were."
)
EVENT_QUEUE_SIZE = gauge(
    "kafka_controller_controllereventmanager_eventqueuesize", "Events that wait for the controller."
)
EVENT_QUEUE_TIME = gauge(
    "kafka_controller_controllereventmanager_eventqueuetimems",
    "How long events waited for the controller, in milliseconds.",
    "quantile",
)
EVENT_QUEUE_TIME_COUNT = counter(
    "kafka_controller_controllereventmanager_eventqueuetimems_count", "How many there were."
)
EVENT_PROCESSING = gauge(
    "kafka_controller_controllereventmanager_eventqueueprocessingtimems",
    "How long the controller worked on events, in milliseconds.",
    "quantile",
)
EVENT_PROCESSING_COUNT = counter(
    "kafka_controller_controllereventmanager_eventqueueprocessingtimems_count", "How many there were."
)

# -- requests ---------------------------------------------------------------------------------------------
_RQ = "kafka_network_requestmetrics_"
REQUESTS = meter(f"{_RQ}requests_total", "Requests by API and version.", "request", "version")
REQUEST_ERRORS = meter(
    f"{_RQ}errors_total",
    "Error codes of answers and of the items in them, by API; NONE is one of them. An answer of Produce, "
    "Fetch or Metadata without an error counts as one NONE.",
    "request",
    "error",
)


def _request_time(part: str, help: str) -> tuple[Metric, Metric]:
    name = f"{_RQ}{part}"
    return (
        gauge(name, f"{help}, in milliseconds, of the last minutes.", "request", "quantile"),
        counter(f"{name}_count", "How many requests there were.", "request"),
    )


TOTAL_TIME, TOTAL_TIME_COUNT = _request_time("totaltimems", "Time from a request to the end of its answer")
QUEUE_TIME, QUEUE_TIME_COUNT = _request_time(
    "requestqueuetimems", "Wait of requests for those that came before them on their connection"
)
LOCAL_TIME, LOCAL_TIME_COUNT = _request_time("localtimems", "Work on requests")
REMOTE_TIME, REMOTE_TIME_COUNT = _request_time(
    "remotetimems", "Wait of requests for records, replicas, other members or another thread"
)
THROTTLE_TIME, THROTTLE_TIME_COUNT = _request_time("throttletimems", "What quotas imposed")
RESPONSE_QUEUE_TIME, RESPONSE_QUEUE_TIME_COUNT = _request_time(
    "responsequeuetimems", "Wait of answers for those before them"
)
SEND_TIME, SEND_TIME_COUNT = _request_time("responsesendtimems", "Time until the socket had taken an answer")
REQUEST_BYTES = gauge(f"{_RQ}requestbytes", "Sizes of requests.", "request", "quantile")
REQUEST_BYTES_COUNT = counter(f"{_RQ}requestbytes_count", "How many requests there were.", "request")
REQUEST_SECONDS = histogram(
    "tidelog_request_duration_seconds",
    "Time from a request to the end of its answer, in buckets that can be added up over brokers.",
    "request",
)
REQUEST_QUEUE_SIZE = gauge(
    "kafka_network_requestchannel_requestqueuesize", "Connections with requests that have come and wait."
)
RESPONSE_QUEUE_SIZE = gauge(
    "kafka_network_requestchannel_responsequeuesize",
    "Connections with answers that their sockets did not take yet.",
)
NETWORK_IDLE = percent(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Which part of the last minute the event loop had nothing to do, from 0 to 1.",
)
HANDLER_IDLE = percent(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same: one loop does both.",
)
HANDLER_IDLE_NS = counter(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
    "Nanoseconds in which the event loop had nothing to do; what the Metrics Reporter's dashboards ask for.",
)
CONTROL_NETWORK_IDLE = percent(
    "kafka_network_socketserver_controlplanenetworkprocessoravgidle_percent",
    "Which part of the last minute no request of the control plane listener was being handled, from 0 to 1; "
    "where there is such a listener.",
)
CONTROL_HANDLER_IDLE = percent(
    "kafka_server_kafkarequesthandlerpool_controlplanerequesthandleravgidle_percent",
    "The same: one loop does both.",
)
LOOP_LAG = histogram(
    "tidelog_event_loop_lag_seconds",
    "How late a timer of the event loop rang, looked at twice a second: how long requests wait for others.",
)
LOOP_HOLD_UPS = counter(
    "tidelog_event_loop_hold_ups_total",
    "Steps of the event loop that took longer than tidelog.loop.step.warn.ms.",
)
LOOP_HELD_UP = counter("tidelog_event_loop_held_up_seconds_total", "How long these took together.")

# -- connections ------------------------------------------------------------------------------------------
_SS = "kafka_server_socket_server_metrics_"
_CONN = ("listener", "networkProcessor")
CONNECTIONS = gauge(f"{_SS}connection_count", "Open connections.", *_CONN)
CREATIONS = counter(f"{_SS}connection_creation_total", "Connections accepted.", *_CONN)
CREATION_RATE = gauge(f"{_SS}connection_creation_rate", "The same, per second in the last minute.", *_CONN)
CLOSES = counter(f"{_SS}connection_close_total", "Connections closed.", *_CONN)
CLOSE_RATE = gauge(f"{_SS}connection_close_rate", "The same, per second in the last minute.", *_CONN)
REQUESTS_RECEIVED = counter(f"{_SS}request_total", "Requests handled.", *_CONN)
REQUEST_RATE = gauge(f"{_SS}request_rate", "The same, per second in the last minute.", *_CONN)
INCOMING_BYTES = counter(f"{_SS}incoming_byte_total", "Bytes of requests handled, without TLS.", *_CONN)
INCOMING_RATE = gauge(f"{_SS}incoming_byte_rate", "The same, per second in the last minute.", *_CONN)
OUTGOING_BYTES = counter(f"{_SS}outgoing_byte_total", "Bytes of responses sent, without TLS.", *_CONN)
OUTGOING_RATE = gauge(f"{_SS}outgoing_byte_rate", "The same, per second in the last minute.", *_CONN)
AUTH_SUCCEEDED = counter(
    f"{_SS}successful_authentication_total", "Logins and TLS handshakes that succeeded.", *_CONN
)
AUTH_FAILED = counter(f"{_SS}failed_authentication_total", "Logins and TLS handshakes that failed.", *_CONN)
REAUTH_SUCCEEDED = counter(
    f"{_SS}successful_reauthentication_total", "Logins again on a connection that succeeded.", *_CONN
)
REAUTH_FAILED = counter(
    f"{_SS}failed_reauthentication_total", "Logins again on a connection that failed.", *_CONN
)
REAUTH_LATENCY_AVG = gauge(
    f"{_SS}reauthentication_latency_avg",
    "Average time in milliseconds that logins again took in the last 30 to 60 seconds; 0 without any.",
    *_CONN,
)
REAUTH_LATENCY_MAX = gauge(f"{_SS}reauthentication_latency_max", "The longest of them.", *_CONN)
REAUTH_RATE = gauge(
    f"{_SS}successful_reauthentication_rate",
    "Logins again that succeeded, per second in the last minute.",
    *_CONN,
)
REAUTH_FAILED_RATE = gauge(
    f"{_SS}failed_reauthentication_rate", "Logins again that failed, per second in the last minute.", *_CONN
)
EXPIRED_KILLED = gauge(
    f"{_SS}expired_connections_killed_count", "Connections closed as their login had expired.", *_CONN
)
TLS_INFO = gauge(
    f"{_SS}connections_tls_info", "Open connections by cipher and protocol.", "cipher", "protocol", *_CONN
)
SOFTWARE = gauge(
    f"{_SS}connections_software",
    "Open connections by the software of their clients, the commonest two hundred; all others as `other`.",
    "clientSoftwareName",
    "clientSoftwareVersion",
    *_CONN,
)

# -- quotas -----------------------------------------------------------------------------------------------
_QUOTA = ("resource", "user", "clientId")
_QUOTA_NOTE = " Of clients with a quota; an empty label stands for all who share it."
QUOTA_BYTE_RATE = gauge("kafka_server_quota_byte_rate", "Bytes a second, by resource." + _QUOTA_NOTE, *_QUOTA)
QUOTA_REQUEST_TIME = gauge(
    "kafka_server_quota_request_time", "Per cent of the time that requests took." + _QUOTA_NOTE, *_QUOTA
)
QUOTA_LIMIT = gauge("tidelog_quota_limit", "What the quota allows." + _QUOTA_NOTE, *_QUOTA)
_TELEMETRY = "kafka_server_client_metrics_"
TELEMETRY_INSTANCES = gauge(f"{_TELEMETRY}instance_count", "Clients that asked what to push, of late.")
TELEMETRY_EXPORTS = counter(f"{_TELEMETRY}plugin_export_count", "Pushes of clients that were taken.")
TELEMETRY_ERRORS = counter(f"{_TELEMETRY}plugin_error_count", "Pushes of clients that could not be read.")
TELEMETRY_THROTTLED = counter(f"{_TELEMETRY}throttle_count", "Pushes and questions that came too early.")
TELEMETRY_UNKNOWN = counter(
    f"{_TELEMETRY}unknown_subscription_request_count",
    "Pushes of another subscription than the client has: it asks anew.",
)
TELEMETRY_SERIES = gauge(
    "tidelog_client_metrics_series",
    "Figures that clients have pushed and that are shown, under names that begin with kafka_client_.",
)
TELEMETRY_LEFT_OUT = counter(
    "tidelog_client_metrics_left_out_total",
    "Figures that clients have pushed and that are not shown: unusable, or more than "
    "tidelog.client.metrics.max.series.",
)
CLIENT_INFO = gauge(
    "kafka_client_info",
    "1 for every client that has pushed, with what it says of itself: rack, group, transactional id.",
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
)
QUOTA_THROTTLED = counter(
    "tidelog_quota_throttled_total", "Times that a client had to pause." + _QUOTA_NOTE, *_QUOTA
)

# -- logs -------------------------------------------------------------------------------------------------
_TP = ("topic", "partition")
LOG_SIZE = gauge("kafka_log_log_size", "Bytes of a replica's segments.", *_TP)
LOG_START = gauge("kafka_log_log_logstartoffset", "The first offset of a replica.", *_TP)
LOG_END = gauge("kafka_log_log_logendoffset", "The offset behind the last record of a replica.", *_TP)
LOG_SEGMENTS = gauge("kafka_log_log_numlogsegments", "Segments of a replica.", *_TP)
OFFLINE_DIRS = gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed.")
LOG_FLUSHES = gauge(
    "kafka_log_logflushstats_logflushrateandtimems",
    "How long syncs of logs took, in milliseconds.",
    "quantile",
)
LOG_FLUSHES_COUNT = counter("kafka_log_logflushstats_logflushrateandtimems_count", "How many there were.")
DIR_TOTAL = gauge(
    "tidelog_log_directory_total_bytes", "Size of the disk that a log directory is on.", "directory"
)
DIR_FREE = gauge("tidelog_log_directory_free_bytes", "What is free on that disk.", "directory")
CLEANINGS = counter("tidelog_log_cleaner_passes_total", "Passes of the log cleaner that came to their end.")
CLEANED_BYTES = counter("tidelog_log_cleaner_read_bytes_total", "Bytes of segments that these read.")
CLEANER_KEPT_BYTES = counter("tidelog_log_cleaner_written_bytes_total", "Bytes that were left of these.")
UNCLEANABLE = gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Partitions that cannot be compacted, by log directory.",
    "logDirectory",
)
UNCLEANABLE_BYTES = gauge(
    "kafka_log_logcleanermanager_uncleanable_bytes", "Bytes of these partitions.", "logDirectory"
)
CLEANER_AGE = gauge(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "Milliseconds since the log cleaner last ended a pass.",
)

# -- waits and sessions -----------------------------------------------------------------------------------
PURGATORY_SIZE = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Requests that wait, by what they do.",
    "delayedOperation",
)
DELAYED = gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations", "The same.", "delayedOperation"
)
FETCH_SESSIONS = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions", "Incremental fetch sessions."
)
SESSION_PARTITIONS = gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", "Partitions that these remember."
)
SESSION_EVICTIONS = meter(
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
    "Sessions that gave way to others.",
)

# -- coordinators -----------------------------------------------------------------------------------------
_G = "kafka_coordinator_group_groupmetadatamanager_"
GROUPS = gauge(f"{_G}numgroups", "Groups coordinated here.")
GROUPS_STABLE = gauge(f"{_G}numgroupsstable", "Of these, in state Stable.")
GROUPS_EMPTY = gauge(f"{_G}numgroupsempty", "Of these, in state Empty.")
GROUPS_DEAD = gauge(f"{_G}numgroupsdead", "Of these, in state Dead.")
GROUPS_PREPARING = gauge(f"{_G}numgroupspreparingrebalance", "Of these, in state PreparingRebalance.")
GROUPS_COMPLETING = gauge(f"{_G}numgroupscompletingrebalance", "Of these, in state CompletingRebalance.")
OFFSETS = gauge(f"{_G}numoffsets", "Committed offsets kept here.")
GROUPS_BY_TYPE = gauge(
    "kafka_server_group_coordinator_metrics_group_count", "Groups by their protocol.", "protocol"
)
COORDINATOR_PARTITIONS = gauge(
    "tidelog_coordinator_partitions",
    "Partitions of internal topics led here, by what has become of them: active, loading or failed.",
    "coordinator",
    "state",
)
GROUP_LOAD_MAX = gauge(
    "kafka_server_group_coordinator_metrics_partition_load_time_max",
    "Milliseconds that loading a partition of groups took at most.",
)
GROUP_LOAD_AVG = gauge(
    "kafka_server_group_coordinator_metrics_partition_load_time_avg", "The same, on average."
)
TXN_LOAD_MAX = gauge(
    "kafka_server_transaction_coordinator_metrics_partition_load_time_max",
    "Milliseconds that loading a partition of transactions took at most.",
)
TXN_LOAD_AVG = gauge(
    "kafka_server_transaction_coordinator_metrics_partition_load_time_avg", "The same, on average."
)
TRANSACTIONS = gauge(
    "tidelog_transactions", "Transactional ids coordinated here, by the state of their transaction.", "state"
)

# -- consumer lag -----------------------------------------------------------------------------------------
_CG = ("consumergroup", "topic", "partition")
_LAG_NOTE = " Of groups coordinated here; -1 where the end of the partition is not known."
LAG = gauge("kafka_consumergroup_lag", "Records behind the committed offset." + _LAG_NOTE, *_CG)
LAG_SUM = gauge(
    "kafka_consumergroup_lag_sum", "The same for all partitions of a topic.", "consumergroup", "topic"
)
LAG_SECONDS = gauge(
    "kafka_consumergroup_lag_seconds",
    "How long ago the first record behind the committed offset came, as far as this broker has watched.",
    *_CG,
)
GROUP_OFFSET = gauge("kafka_consumergroup_current_offset", "The committed offset.", *_CG)
GROUP_OFFSET_SUM = gauge(
    "kafka_consumergroup_current_offset_sum",
    "The same for all partitions of a topic.",
    "consumergroup",
    "topic",
)
GROUP_MEMBERS = gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup")
GL_LAG = gauge(
    "kafka_consumergroup_group_lag", "kafka_consumergroup_lag by another exporter's name.", "group", *_TP
)
GL_LAG_SECONDS = gauge(
    "kafka_consumergroup_group_lag_seconds", "The same of kafka_consumergroup_lag_seconds.", "group", *_TP
)
GL_MAX_LAG = gauge("kafka_consumergroup_group_max_lag", "The largest lag of a group's partitions.", "group")
GL_MAX_LAG_SECONDS = gauge("kafka_consumergroup_group_max_lag_seconds", "The same in seconds.", "group")
GL_SUM_LAG = gauge("kafka_consumergroup_group_sum_lag", "The lag of all of a group's partitions.", "group")
GL_TOPIC_SUM_LAG = gauge("kafka_consumergroup_group_topic_sum_lag", "The same by topic.", "group", "topic")
GL_OFFSET = gauge(
    "kafka_consumergroup_group_offset", "kafka_consumergroup_current_offset by another name.", "group", *_TP
)
LAG_LEFT_OUT = gauge(
    "tidelog_consumergroup_series_left_out",
    "Committed offsets that are not shown, because there are more than tidelog.metrics.max.group.series.",
)
BROKERS = gauge("kafka_brokers", "Brokers of the cluster.")
BROKER_INFO = gauge("kafka_broker_info", "Always 1, for each broker of the cluster.", "id", "address")
TOPIC_PARTITIONS = gauge("kafka_topic_partitions", "Partitions of a topic.", "topic")
CURRENT_OFFSET = gauge(
    "kafka_topic_partition_current_offset", "The high watermark of a partition led here.", *_TP
)
OLDEST_OFFSET = gauge(
    "kafka_topic_partition_oldest_offset", "The first offset of a partition led here.", *_TP
)
TP_LEADER = gauge("kafka_topic_partition_leader", "The broker that leads, of partitions led here.", *_TP)
TP_PREFERRED = gauge(
    "kafka_topic_partition_leader_is_preferred",
    "1 if that is the preferred one, of partitions led here.",
    *_TP,
)
TP_REPLICAS = gauge("kafka_topic_partition_replicas", "Replicas, of partitions led here.", *_TP)
TP_IN_SYNC = gauge("kafka_topic_partition_in_sync_replica", "Replicas in sync, of partitions led here.", *_TP)
TP_UNDER_REPLICATED = gauge(
    "kafka_topic_partition_under_replicated_partition",
    "1 if one is not in sync, of partitions led here.",
    *_TP,
)

# -- server -----------------------------------------------------------------------------------------------
BROKER_STATE = gauge(
    "kafka_server_kafkaserver_brokerstate",
    "Kafka's numbers: 1 starting, 2 recovering, 3 running, 4 running as the controller, 6 handing over, "
    "7 shutting down.",
)
BUILD_INFO = gauge(
    "tidelog_build_info",
    "Always 1; labels say which broker this is.",
    "version",
    "commit",
    "broker_id",
    "cluster_id",
)
READY = gauge("tidelog_ready", "1 if /ready says so: serving, caught up, and no log directory offline.")
DISK_READ = gauge("kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes that the process read from disks.")
DISK_WRITTEN = gauge("kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that it wrote to disks.")
SERIES = gauge("kafka_server_kafkaserver_yammer_metrics_count", "Families declared.")
ZK_LATENCY = gauge(
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
    "How long ZooKeeper took to answer, in milliseconds.",
    "quantile",
)
ZK_LATENCY_COUNT = counter(
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count", "How many requests there were."
)
_SE = "kafka_server_sessionexpirelistener_"
ZK_DISCONNECTS = meter(f"{_SE}zookeeperdisconnects_total", "Times that the connection to ZooKeeper was lost.")
ZK_EXPIRES = meter(f"{_SE}zookeeperexpires_total", "Times that the session with ZooKeeper expired.")
ZK_CONNECTED = gauge("tidelog_zookeeper_connected", "1 while there is a session with ZooKeeper.")
CERTIFICATE_EXPIRY = gauge(
    "tidelog_tls_certificate_expires_at_timestamp_seconds",
    "When the first certificate of a listener's chain expires, in seconds since 1970.",
    "listener",
)
TRUST_EXPIRY = gauge(
    "tidelog_tls_truststore_expires_at_timestamp_seconds",
    "When the first certificate that a listener trusts expires.",
    "listener",
)
CERTIFICATE_RELOADS = counter(
    "tidelog_tls_certificate_reloads_total", "Certificates taken over without a restart.", "listener"
)
CERTIFICATE_FAILURES = counter(
    "tidelog_tls_certificate_reload_failures_total", "Certificates that could not be taken over.", "listener"
)
OTLP_REQUESTS = counter(
    "tidelog_otlp_requests_total", "Requests with metrics to an OpenTelemetry collector.", "outcome"
)
OTLP_POINTS = counter("tidelog_otlp_points_total", "Figures that a collector has taken.")
SCRAPE_SECONDS = gauge("tidelog_last_scrape_duration_seconds", "How long it took to write the last page.")
SCRAPES_REFUSED = counter(
    "tidelog_http_connections_refused_total", "HTTP connections that made room for others."
)
PROCESS_CPU = counter("process_cpu_seconds_total", "Processor time of the process.")
PROCESS_START = gauge("process_start_time_seconds", "When the process began, in seconds since 1970.")
PROCESS_RESIDENT = gauge("process_resident_memory_bytes", "Memory that the process has in use.")
PROCESS_VIRTUAL = gauge("process_virtual_memory_bytes", "Its address space.")
PROCESS_THREADS = gauge("process_threads", "Its threads.")
PROCESS_FDS = gauge("process_open_fds", "Files and sockets that it has open.")
PROCESS_MAX_FDS = gauge("process_max_fds", "How many it may have open.")

SECTIONS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    (
        "Topics",
        (
            MESSAGES_IN,
            BYTES_IN,
            BYTES_OUT,
            BYTES_REJECTED,
            PRODUCE_REQUESTS,
            FETCH_REQUESTS,
            FAILED_PRODUCE,
            FAILED_FETCH,
            REPLICATION_IN,
            REPLICATION_OUT,
            REASSIGNMENT_IN,
            REASSIGNMENT_OUT,
            PRODUCE_CONVERSIONS,
            FETCH_CONVERSIONS,
        ),
    ),
    (
        "Replicas",
        (
            LEADER_COUNT,
            PARTITION_COUNT,
            UNDER_REPLICATED,
            UNDER_MIN_ISR,
            AT_MIN_ISR,
            OFFLINE_REPLICAS,
            REASSIGNING,
            PRODUCER_IDS,
            ISR_SHRINKS,
            ISR_EXPANDS,
            FAILED_ISR_UPDATES,
            P_UNDER_MIN_ISR,
            P_AT_MIN_ISR,
            P_REPLICAS,
            P_IN_SYNC,
            P_UNDER_REPLICATED,
            MAX_LAG,
            FETCHER_LAG,
        ),
    ),
    (
        "Controller",
        (
            ACTIVE_CONTROLLER,
            OFFLINE_PARTITIONS,
            GLOBAL_TOPICS,
            GLOBAL_PARTITIONS,
            IMBALANCE,
            ACTIVE_BROKERS,
            FENCED_BROKERS,
            TOPICS_TO_DELETE,
            REPLICAS_TO_DELETE,
            UNCLEAN_ELECTIONS,
            LEADER_ELECTIONS,
            LEADER_ELECTIONS_COUNT,
            EVENT_QUEUE_SIZE,
            EVENT_QUEUE_TIME,
            EVENT_QUEUE_TIME_COUNT,
            EVENT_PROCESSING,
            EVENT_PROCESSING_COUNT,
        ),
    ),
    (
        "Requests",
        (
            REQUESTS,
            REQUEST_ERRORS,
            TOTAL_TIME,
            TOTAL_TIME_COUNT,
            QUEUE_TIME,
            QUEUE_TIME_COUNT,
            LOCAL_TIME,
            LOCAL_TIME_COUNT,
            REMOTE_TIME,
            REMOTE_TIME_COUNT,
            THROTTLE_TIME,
            THROTTLE_TIME_COUNT,
            RESPONSE_QUEUE_TIME,
            RESPONSE_QUEUE_TIME_COUNT,
            SEND_TIME,
            SEND_TIME_COUNT,
            REQUEST_BYTES,
            REQUEST_BYTES_COUNT,
            REQUEST_SECONDS,
            REQUEST_QUEUE_SIZE,
            RESPONSE_QUEUE_SIZE,
            NETWORK_IDLE,
            HANDLER_IDLE,
            HANDLER_IDLE_NS,
            CONTROL_NETWORK_IDLE,
            CONTROL_HANDLER_IDLE,
            LOOP_LAG,
            LOOP_HOLD_UPS,
            LOOP_HELD_UP,
        ),
    ),
    (
        "Connections",
        (
            CONNECTIONS,
            CREATIONS,
            CREATION_RATE,
            CLOSES,
            CLOSE_RATE,
            REQUESTS_RECEIVED,
            REQUEST_RATE,
            INCOMING_BYTES,
            INCOMING_RATE,
            OUTGOING_BYTES,
            OUTGOING_RATE,
            AUTH_SUCCEEDED,
            AUTH_FAILED,
            REAUTH_SUCCEEDED,
            REAUTH_RATE,
            REAUTH_FAILED,
            REAUTH_FAILED_RATE,
            REAUTH_LATENCY_AVG,
            REAUTH_LATENCY_MAX,
            EXPIRED_KILLED,
            TLS_INFO,
            SOFTWARE,
            CERTIFICATE_EXPIRY,
            TRUST_EXPIRY,
            CERTIFICATE_RELOADS,
            CERTIFICATE_FAILURES,
        ),
    ),
    ("Quotas", (QUOTA_BYTE_RATE, QUOTA_REQUEST_TIME, QUOTA_LIMIT, QUOTA_THROTTLED)),
    (
        "Clients' telemetry",
        (
            TELEMETRY_INSTANCES,
            TELEMETRY_EXPORTS,
            TELEMETRY_ERRORS,
            TELEMETRY_THROTTLED,
            TELEMETRY_UNKNOWN,
            TELEMETRY_SERIES,
            TELEMETRY_LEFT_OUT,
            CLIENT_INFO,
        ),
    ),
    (
        "Logs",
        (
            LOG_SIZE,
            LOG_START,
            LOG_END,
            LOG_SEGMENTS,
            OFFLINE_DIRS,
            LOG_FLUSHES,
            LOG_FLUSHES_COUNT,
            DIR_TOTAL,
            DIR_FREE,
            CLEANINGS,
            CLEANED_BYTES,
            CLEANER_KEPT_BYTES,
            UNCLEANABLE,
            UNCLEANABLE_BYTES,
            CLEANER_AGE,
        ),
    ),
    (
        "Waits and fetch sessions",
        (PURGATORY_SIZE, DELAYED, FETCH_SESSIONS, SESSION_PARTITIONS, SESSION_EVICTIONS),
    ),
    (
        "Coordinators",
        (
            GROUPS,
            GROUPS_STABLE,
            GROUPS_EMPTY,
            GROUPS_DEAD,
            GROUPS_PREPARING,
            GROUPS_COMPLETING,
            OFFSETS,
            GROUPS_BY_TYPE,
            COORDINATOR_PARTITIONS,
            GROUP_LOAD_MAX,
            GROUP_LOAD_AVG,
            TXN_LOAD_MAX,
            TXN_LOAD_AVG,
            TRANSACTIONS,
        ),
    ),
    (
        "Consumer lag",
        (
            LAG,
            LAG_SUM,
            LAG_SECONDS,
            GROUP_OFFSET,
            GROUP_OFFSET_SUM,
            GROUP_MEMBERS,
            GL_LAG,
            GL_LAG_SECONDS,
            GL_MAX_LAG,
            GL_MAX_LAG_SECONDS,
            GL_SUM_LAG,
            GL_TOPIC_SUM_LAG,
            GL_OFFSET,
            LAG_LEFT_OUT,
            BROKERS,
            BROKER_INFO,
            TOPIC_PARTITIONS,
            CURRENT_OFFSET,
            OLDEST_OFFSET,
            TP_LEADER,
            TP_PREFERRED,
            TP_REPLICAS,
            TP_IN_SYNC,
            TP_UNDER_REPLICATED,
        ),
    ),
    (
        "Server and process",
        (
            BROKER_STATE,
            BUILD_INFO,
            READY,
            DISK_READ,
            DISK_WRITTEN,
            SERIES,
            ZK_LATENCY,
            ZK_LATENCY_COUNT,
            ZK_DISCONNECTS,
            ZK_EXPIRES,
            ZK_CONNECTED,
            SCRAPE_SECONDS,
            SCRAPES_REFUSED,
            OTLP_REQUESTS,
            OTLP_POINTS,
            PROCESS_CPU,
            PROCESS_START,
            PROCESS_RESIDENT,
            PROCESS_VIRTUAL,
            PROCESS_THREADS,
            PROCESS_FDS,
            PROCESS_MAX_FDS,
        ),
    ),
)
"""All families, by what they are about."""

FAMILIES = tuple(metric for _, section in SECTIONS for metric in section)
