"""Reassignments as files, in the form of kafka-reassign-partitions, and as tables.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}

A file may name log directories (``log_dirs``), for replicas that shall go to a certain disk; this command
does not move replicas between disks and takes ``"any"`` only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tidelog.cli.failure import WrongUsage
from tidelog.cli.output import print_table
from tidelog.client.admin.cluster_resources import PartitionReassignment
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.ids import TopicPartition

VERSION = 1
_FORM = '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'


class _Entry(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    log_dirs: list[str] = []


class _File(msgspec.Struct):
    partitions: list[_Entry]
    version: int = VERSION


def read_assignment(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions and replicas that a file names (``-``: stdin)."""
    content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    try:
        file = msgspec.json.decode(content, type=_File)
    except DECODE_ERRORS as error:
        raise WrongUsage(f"{path} is not a valid reassignment ({error}): the format is {_FORM}") from None
    if file.version != VERSION:
        raise WrongUsage(f"{path} has version {file.version}; only version {VERSION} is supported")
    assignment: dict[TopicPartition, tuple[int, ...]] = {}
    for entry in file.partitions:
        partition = TopicPartition(entry.topic, entry.partition)
        _check(entry, partition, path)
        if partition in assignment:
            raise WrongUsage(f"{path} lists {partition} twice: remove one of them")
        assignment[partition] = tuple(entry.replicas)
    if not assignment:
        raise WrongUsage(f"{path} lists no partitions: the format is {_FORM}")
    return assignment


def _check(entry: _Entry, partition: TopicPartition, path: Path) -> None:
    if not entry.replicas:
        raise WrongUsage(f"{path} lists no replicas for {partition}: add at least one broker")
    if len(set(entry.replicas)) < len(entry.replicas):
        raise WrongUsage(f"{path} lists a broker twice for {partition}: {entry.replicas}")
    if any(directory != "any" for directory in entry.log_dirs):
        raise WrongUsage(
            f'{path} sets log directories for {partition}, which is not supported: remove "log_dirs" '
            "(`tidelog log-dirs move` moves replicas between directories)"
        )


def assignment_json(assignment: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """An assignment in the form of the files."""
    return {
        "version": VERSION,
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "replicas": list(assignment[each])}
            for each in sorted(assignment)
        ],
    }


def write_assignment(assignment: Mapping[TopicPartition, Sequence[int]], path: Path) -> None:
    """Write a file that ``partitions reassign`` and Kafka's own tool read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(assignment_json(assignment)), indent=2) + b"\n")


def print_moves(
    current: Mapping[TopicPartition, Sequence[int]], planned: Mapping[TopicPartition, Sequence[int]]
) -> None:
    """Where each partition is and where it goes."""
    rows = [
        (each.topic, each.partition, tuple(current[each]), tuple(new), _change(current[each], new))
        for each, new in sorted(planned.items())
    ]
    print_table(("topic", "partition", "current", "planned", "change"), rows, right=("partition",))


def _change(current: Sequence[int], planned: Sequence[int]) -> str | None:
    """``+4 -1``, ``order`` or nothing."""
    parts = [f"+{broker}" for broker in planned if broker not in current]
    parts += [f"-{broker}" for broker in current if broker not in planned]
    if not parts and tuple(current) != tuple(planned):
        return "order"
    return " ".join(parts) or None


def print_reassignments(reassignments: Iterable[PartitionReassignment]) -> None:
    """The partitions that are on their way."""
    rows = [
        (
            each.partition.topic,
            each.partition.partition,
            each.replicas,
            each.adding_replicas,
            each.removing_replicas,
        )
        for each in reassignments
    ]
    print_table(("topic", "partition", "replicas", "adding", "removing"), rows, right=("partition",))


def reassignment_json(each: PartitionReassignment) -> dict[str, object]:
    """One of them for programs."""
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "replicas": each.replicas,
        "adding_replicas": each.adding_replicas,
        "removing_replicas": each.removing_replicas,
    }
