"""What a person may choose about the main job, and where it keeps things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PARTITIONS = 2
"""Partitions of every topic: one for each core of a small machine."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """One run of ``tidelog demo``."""

    directory: Path
    rate: int
    seconds: float | None = None
    seed: int = 1
    port: int | None = None
    """The broker's port; None takes 9092 if it is free, else any."""
    resume: bool = False
    pipelines: tuple[str, ...] = ()
    """Which to run; none named means all."""
    master: str = "local[*]"
    trigger: str = "4 seconds"
    """Five queries on two cores: a micro-batch of each costs about a second of CPU, however small."""

    cassandra: str | None = None
    """Contact points of a Cassandra that keeps the tables; None keeps them in files of the directory."""

    @property
    def broker_data(self) -> Path:
        """The broker's log directory."""
        return self.directory / "broker"

    def truth(self, number: int) -> Path:
        """What the generator planted in a run, one JSON object per line; a resumed run adds a file."""
        return self.directory / f"truth-{number}.jsonl"

    @property
    def marker(self) -> Path:
        """A file that says that the directory belongs to the main job, so that it may be cleared.

        It is locked while a run uses the directory.
        """
        return self.directory / ".tidelog-demo"

    @property
    def keyspace_marker(self) -> Path:
        """A file with the name of the keyspace in Cassandra, where there is one."""
        return self.directory / ".keyspace"

    @property
    def topics_marker(self) -> Path:
        """A file that is there as soon as the topics are: the Spark child waits for it."""
        return self.directory / ".topics"

    @property
    def console_config(self) -> Path:
        """What the console is told."""
        return self.directory / "console.toml"

    def log(self, child: str) -> Path:
        """Where a child's own words go."""
        return self.directory / "logs" / f"{child}.log"
