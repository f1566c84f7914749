"""Differences that are meant, each under the name by which docs/reference/deviations.md explains it.

A deviation says which places of an answer may differ (a pattern: ``*`` stands for anything) and what our
value there is; a difference at another place, or with another value, fails the case, and so does none at all.
``KNOWN`` says which cases show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

ANYTHING = object()
"""Our value is the answer's own business: another place of the same answer says what matters."""


@dataclass(frozen=True)
class Deviation:
    """A difference that is meant: its name, and our value at each place where answers may differ."""

    name: str
    ours: Mapping[str, object]

    def unexplained(self, found: Mapping[str, tuple[object, object]]) -> dict[str, tuple[object, object]]:
        """What it does not explain of the differences that were found."""
        return {path: both for path, both in found.items() if not self._explains(path, both[0])}

    def _explains(self, path: str, mine: object) -> bool:
        return any(
            matches(path, pattern) and (value is ANYTHING or value == mine)
            for pattern, value in self.ours.items()
        )


def matches(text: str, pattern: str) -> bool:
    """Whether a place or a case's name fits a pattern; ``*`` stands for anything."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _refused(name: str, code: str) -> Deviation:
    """A batch that is refused, where Kafka takes it or answers with another code."""
    return Deviation(
        name,
        {
            "*error_code": code,
            "*base_offset": -1,
            "*log_start_offset": ANYTHING,
            "*error_message": ANYTHING,
            "*record_errors": ANYTHING,
            "stored": [],
        },
    )


_STRICT = _refused("strict-records", "INVALID_RECORD")
_CLEAR_CODE = _refused("clear-codes", "INVALID_RECORD")
_UNKNOWN_CODEC = _refused("clear-codes", "UNSUPPORTED_COMPRESSION_TYPE")
_ORDINARY = Deviation("clear-codes", {"*": ANYTHING})
_UNKNOWN_OPERATION = Deviation("clear-codes", {"*error_code": "INVALID_REQUEST", "*error_message": ANYTHING})
_TOO_MANY = Deviation("clear-codes", {"*error_code": "POLICY_VIOLATION", "*error_message": ANYTHING})
_EMPTY_NAME = Deviation(
    "clear-codes", {"*error_code": "INVALID_TOPIC_EXCEPTION", "*topic_authorized_operations": ANYTHING}
)
_UNKNOWN_SESSION = Deviation(
    "clear-codes", {"error_code": "FETCH_SESSION_ID_NOT_FOUND", "session_id": 0, "responses": []}
)
_ONE_BAD_BATCH = Deviation(
    "one-bad-batch",
    {
        "*[1].error_code": "NONE",
        "*[1].base_offset": 0,
        "*[1].log_start_offset": 0,
        "*[1].error_message": None,
    },
)
_NO_NUMBER = Deviation(
    "quota-numbers",
    {
        "[0].entries[0].error_code": "INVALID_REQUEST",
        "[0].entries[0].error_message": ANYTHING,
        "[1].entries": [],
    },
)
_CLOSED = {"": "the connection is closed"}
_IDLE = Deviation("idle-options", {"*error_code": "NONE", "*error_message": ANYTHING, "*configs": ANYTHING})
_OTHER_WORDS = Deviation("other-words", {"*error_message": ANYTHING})
_NO_LEFTOVERS = Deviation(
    "no-leftover-groups",
    {"*error_code": "GROUP_ID_NOT_FOUND", "*error_message": ANYTHING, "*group_state": "Dead"},
)
_NO_SUCH_PRODUCER = Deviation("clear-codes", {"*error_code": "INVALID_PRODUCER_ID_MAPPING"})
_NO_SUCH_EPOCH = Deviation("clear-codes", {"*error_code": "INVALID_PRODUCER_EPOCH"})

KNOWN: dict[str, Deviation] = {
    "produce_requests.null_records[*]": Deviation("null-records", {"[0]": "an answer"}),
    "produce_requests.acks_0_refused[null]": Deviation("null-records", {"[0]": "the connection is closed"}),
    "produce_requests.batch_that_cannot_be_read_beside_a_good_one[*]": _ONE_BAD_BATCH,
    "produce_requests.same_partition_twice[*]": Deviation("named-twice", {"*": ANYTHING}),
    "produce_requests.same_topic_twice[*]": Deviation("named-twice", {"[0].responses": ANYTHING}),
    "produce_batches.headers*[codec-*]": _UNKNOWN_CODEC,
    **{
        f"produce_batches.bodies*[{deltas}-none]": _STRICT
        for deltas in ("deltas-from-1", "deltas-gap", "delta-negative")
    },
    "produce_batches.bodies*[delta*-gzip]": _CLEAR_CODE,
    "produce_batches.bodies*[delta*-lz4]": _CLEAR_CODE,
    "produce_batches.bodies*[delta*-zstd]": _CLEAR_CODE,
    "produce_batches.malformed_records*[length-varint-too-long-none]": _CLEAR_CODE,
    **{
        f"produce_batches.malformed_records*[length-{wrong}-snappy]": _STRICT
        for wrong in ("0", "negative", "less", "more", "huge")
    },
    "produce_batches.compressed_garbage[*-garbage]": _CLEAR_CODE,
    "produce_batches.compressed_garbage[*-cut]": _CLEAR_CODE,
    **{
        f"produce_batches.compressed_garbage[{codec}-empty]": _CLEAR_CODE
        for codec in ("gzip", "snappy", "lz4")
    },
    "produce_batches.bytes_behind_a_compressed_body[gzip]": _STRICT,
    "produce_batches.bytes_behind_a_compressed_body[lz4]": _STRICT,
    "produce_batches.bytes_behind_a_compressed_body[*]": _CLEAR_CODE,
    "produce_batches.two_compressed_bodies[gzip]": _STRICT,
    "produce_batches.two_compressed_bodies[snappy]": _STRICT,
    "produce_batches.two_compressed_bodies[lz4]": _OTHER_WORDS,
    "produce_batches.linked_lz4_blocks": _CLEAR_CODE,
    "produce_batches.compressed_garbage_on_compacted_topic[*]": _CLEAR_CODE,
    "produce_batches.compressed_garbage_for_another_codec[*]": _CLEAR_CODE,
    "fetches.partition_limit[-*]": _ORDINARY,
    "fetches.request_limit[-*]": _ORDINARY,
    "fetches.odd_isolation[*]": _ORDINARY,
    "fetch_waits.wait_while_the_topic_is_deleted[v18]": Deviation(
        "deleted-while-waiting", {"[0]": "UNKNOWN_TOPIC_ID"}
    ),
    "fetch_sessions.highest_session_id[*]": _UNKNOWN_SESSION,
    "offsets.odd_isolation[*]": _ORDINARY,
    "offsets.without_timestamps": Deviation(
        "no-timestamps",
        {"[0].topics[0].partitions[0].offset": -1, "[0].topics[0].partitions[0].leader_epoch": -1},
    ),
    "offsets.topic_without_partitions[*]": Deviation("topics-without-partitions", {"topics": ANYTHING}),
    "offsets.same_partition_twice[*]": Deviation("named-twice", {"topics[0].partitions": ANYTHING}),
    "offsets.same_topic_twice[*]": Deviation("named-twice", {"topics": ANYTHING}),
    "metadata.neither_id_nor_name_since_12[*]": _ORDINARY,
    "metadata.coordinator_of_odd_type[*]": _OTHER_WORDS,
    "connections.odd_bodies[string-not-utf8]": Deviation("strict-bytes", _CLOSED),
    "connections.odd_bodies[compact-array-huge]": Deviation("strict-bytes", _CLOSED),
    "admin_topics.more_partitions[huge-*]": _TOO_MANY,
    "quota_requests.no_number[*]": _NO_NUMBER,
    "admin_configs.describe_broker": _IDLE,
    "admin_configs.describe_every_option_that_is_honoured": Deviation(
        "reporters-at-start", {"metric.reporters.read_only": True}
    ),
    "admin_config_changes.change_topic[operation-*]": _UNKNOWN_OPERATION,
    "admin_config_changes.change_topic[append-to-default]": _IDLE,
    "admin_config_changes.change_broker_dry[cleaner]": _IDLE,
    "admin_config_changes.change_broker_dry[threads]": _IDLE,
    "admin_config_changes.change_broker_and_take_back[leader.replication.throttled.rate]": _IDLE,
    "admin_config_changes.change_broker_dry[retention-0]": _OTHER_WORDS,
    "admin_config_changes.change_logger[operation-9]": _UNKNOWN_OPERATION,
    "client_telemetry.change_dry[metrics-append]": Deviation(
        "append-to-subscriptions", {"*error_code": "NONE", "*error_message": None}
    ),
    "client_telemetry.change_dry[match-bad-regex]": _OTHER_WORDS,
    "client_telemetry.change_dry[operation-9]": _UNKNOWN_OPERATION,
    "admin_cluster.topic_partitions_empty_name": _EMPTY_NAME,
    "admin_cluster.reassign_nothing": _OTHER_WORDS,
    "group_joining.first_with_odd_protocols[no-type-*]": _NO_LEFTOVERS,
    "group_joining.first_with_odd_protocols[none-*]": _NO_LEFTOVERS,
    "group_joining.first_with_odd_protocols[neither-*]": _NO_LEFTOVERS,
    "group_offsets.places[longer-metadata-*]": _NO_LEFTOVERS,
    "consumer_groups.regex[lookahead]": _OTHER_WORDS,
    "consumer_groups.regex[backreference]": _OTHER_WORDS,
    "consumer_groups.regex[repeat]": _OTHER_WORDS,
    "group_types.consumer_heartbeat_of_a_classic_member[0]": Deviation(
        "clear-codes", {"*error_code": "GROUP_ID_NOT_FOUND", "*error_message": ANYTHING}
    ),
    "transaction_markers.marker_*[negative-id-*]": _NO_SUCH_PRODUCER,
    "transaction_markers.marker_*[negative-epoch-*]": _NO_SUCH_EPOCH,
    "transaction_markers.marker_for_an_empty_partition[older-epoch-*]": _NO_SUCH_EPOCH,
    "transaction_markers.marker_twice[older-epoch-*]": _NO_SUCH_EPOCH,
}


def deviation_of(case: str) -> Deviation | None:
    """The deviation that a case shows: the first whose pattern fits its name."""
    return next((each for pattern, each in KNOWN.items() if matches(case, pattern)), None)
