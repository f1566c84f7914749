"""Values that a producer of librdkafka has written twice by itself: told by its trace and by the log.

When a partition gets another leader, librdkafka (2.16) waits for its requests to the old one before it sends
to the new one. Its thread for the new leader may go on before its thread for the old one has put back the
batch that was refused there, and so sends a later batch first. The new leader has to refuse that one for its
sequence (OUT_OF_ORDER_SEQUENCE_NUMBER, as Apache Kafka does); the producer then begins a new epoch and sends
all that is not acknowledged again, in all partitions, also what is in their logs already. No broker could
know these batches again.

Such a repeat is in two epochs of one producer, and its trace (``debug=eos``) says that the batch which the
sequence was short of had been refused to it before. Any other repeat stays a finding.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.chaos.cluster.replicas import Batch, batches

from tidelog.records.batch import parse_header

TRACE = {"debug": "eos"}
"""Options of a producer that make it tell."""
REFUSALS = frozenset({"NOT_LEADER_FOR_PARTITION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"})
_SKIPPED = re.compile(
    r"failed due to skipped sequence numbers \(PID\{Id:(?P<id>\d+),Epoch:(?P<epoch>\d+)\}, "
    r"base seq \d+ > next seq (?P<next>\d+)\) caused by previous failed request "
    r"\((?P<error>\w+), actions [^)]*?base seq (?P<refused>-?\d+)\.\."
)


class Epoch(NamedTuple):
    """A producer's id and epoch."""

    producer_id: int
    epoch: int


def given_up(trace: str) -> frozenset[Epoch]:
    """The epochs that a producer has given up because it had left out a batch that was refused to it."""
    return frozenset(
        Epoch(int(found["id"]), int(found["epoch"]))
        for found in _SKIPPED.finditer(trace)
        if found["error"] in REFUSALS and found["next"] == found["refused"]
    )


def epoch_at(log: Sequence[Batch], offset: int) -> Epoch | None:
    """Of which producer, and of which of its epochs, the record at an offset is."""
    for first, last, data in log:
        if first <= offset <= last:
            header = parse_header(data)
            return Epoch(header.producer_id, header.producer_epoch)
    return None


def is_own(epochs: Collection[Epoch | None], gone: frozenset[Epoch]) -> bool:
    """Whether one producer has written a value in each of these epochs, and had given up all but the last."""
    known = sorted(each for each in epochs if each is not None)
    if len(known) < len(epochs) or len(set(known)) < len(known):
        return False
    first, last = known[0], known[-1]
    return first.producer_id == last.producer_id and all(
        Epoch(first.producer_id, each) in gone for each in range(first.epoch, last.epoch)
    )


def own_repeats(
    repeated: Mapping[str, Iterable[tuple[tuple[str, int], int]]],
    traces: Mapping[str, str],
    log_dirs: Sequence[Path],
) -> set[str]:
    """Those of the values that their producers, which begin them with their name, have repeated themselves.

    ``log_dirs`` are those of brokers that have stopped.
    """
    gone = {name: given_up(trace) for name, trace in traces.items()}
    logs: dict[tuple[str, int], list[Batch]] = {}
    found = set()
    for value, places in repeated.items():
        epochs = []
        for place, offset in places:
            if place not in logs:
                topic, partition = place
                kept = [each / f"{topic}-{partition}" for each in log_dirs]
                logs[place] = next((batches(each) for each in kept if each.is_dir()), [])
            epochs.append(epoch_at(logs[place], offset))
        if is_own(epochs, gone.get(value.partition(":")[0], frozenset())):
            found.add(value)
    return found
