"""Keeps the graph of invitations across restarts: one file per micro-batch, now and then a snapshot.

    rings/<batch>.edges     the invitations of that batch, a JSON object per line
    rings/<batch>.snapshot  all invitations held after that batch

Invariant: the graph before batch n is the latest snapshot below n and the edges of the batches after it. A
file is written whole, synced, and renamed, before its batch's alerts are; a batch that Spark replays finds
the graph as it was and writes the same file again. A batch without invitations has no file.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tidelog.pipelines.invite_fraud.graph import Edge, InviteGraph, Ring
from tidelog.pipelines.invite_fraud.schema import RULES, Rules

BATCHES_PER_SNAPSHOT = 200


class GraphLog:
    """The graph of one checkpoint; called with each micro-batch, one at a time."""

    def __init__(self, directory: Path, rules: Rules = RULES) -> None:
        self._directory = directory
        self._rules = rules
        self._graph: InviteGraph | None = None
        self._batch = -1
        self._since_snapshot = 0
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, batch_id: int, edges: list[Edge]) -> list[Ring]:
        """The rings that a batch closes; the batch is on disk when this returns."""
        graph = self._before(batch_id)
        if edges:
            _write_whole(self._path(batch_id, "edges"), _lines(sorted(edges)))
        rings = graph.add(edges)
        self._batch = batch_id
        if edges:
            self._since_snapshot += 1
            if self._since_snapshot >= BATCHES_PER_SNAPSHOT:
                self._snapshot(batch_id, graph)
        return rings

    def _before(self, batch_id: int) -> InviteGraph:
        if self._graph is None or batch_id <= self._batch:
            self._graph = self._load(batch_id)
        return self._graph

    def _load(self, batch_id: int) -> InviteGraph:
        graph = InviteGraph(self._rules)
        snapshots = [number for number in self._numbers("snapshot") if number < batch_id]
        base = max(snapshots, default=-1)
        if snapshots:
            graph.restore(_read(self._path(base, "snapshot")))
        later = [number for number in self._numbers("edges") if base < number < batch_id]
        for number in later:
            graph.add(_read(self._path(number, "edges")))
        self._since_snapshot = len(later)
        return graph

    def _snapshot(self, batch_id: int, graph: InviteGraph) -> None:
        """Only what is older than the snapshot before may go: Spark may replay the last batch."""
        earlier = [number for number in self._numbers("snapshot") if number < batch_id]
        _write_whole(self._path(batch_id, "snapshot"), _lines(sorted(graph.edges())))
        self._since_snapshot = 0
        if earlier:
            for kind in ("edges", "snapshot"):
                for number in self._numbers(kind):
                    if number < earlier[-1] or (kind == "edges" and number == earlier[-1]):
                        self._path(number, kind).unlink()

    def _path(self, batch_id: int, kind: str) -> Path:
        return self._directory / f"{batch_id:012d}.{kind}"

    def _numbers(self, kind: str) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob(f"*.{kind}"))


def _lines(edges: list[Edge]) -> bytes:
    return b"".join(msgspec.json.encode(edge) + b"\n" for edge in edges)


def _read(path: Path) -> list[Edge]:
    return [msgspec.json.decode(line, type=Edge) for line in path.read_bytes().splitlines()]


def _write_whole(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old one or the new one."""
    unfinished = path.with_suffix(f"{path.suffix}.unfinished")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
