"""What a group's members saw and did, and the promises that it must keep.

* **One owner**: within a generation no two members are given the same partition.
* **Fenced**: a commit is taken from a member of the current generation alone, so committed offsets never go
  back (nobody in this world commits backwards on purpose).
* **Kept**: what was acknowledged is there after a crash; a fetch never tells less.
* **At least once**: records below a committed offset have been processed.
"""

from __future__ import annotations

from collections import defaultdict

from tidelog.ids import TopicPartition

FIRST_GENERATION = 1


class BrokenPromise(AssertionError):
    """The history shows something that must not be."""


class GroupHistory:
    """One group's history."""

    def __init__(self) -> None:
        self.owners: dict[int, dict[TopicPartition, str]] = defaultdict(dict)
        self.acknowledged: dict[TopicPartition, int] = {}
        self.processed: dict[TopicPartition, int] = {}
        self.rebalances = 0
        self.commits = 0
        self.refused_commits = 0

    def joined(self, generation: int) -> None:
        """A member was answered that it is in a generation; the first one is that of a group made anew.

        So it is, as in Kafka, when classic members come to a consumer group that everybody has left.
        """
        if generation == FIRST_GENERATION and any(known > generation for known in self.owners):
            self.owners.clear()

    def assigned(self, generation: int, member: str, partitions: set[TopicPartition]) -> None:
        """A member was told what is its own in a generation."""
        owners = self.owners[generation]
        for partition in partitions:
            owner = owners.setdefault(partition, member)
            if owner != member:
                raise BrokenPromise(f"{partition} belongs to {owner} and {member} in generation {generation}")
        self.rebalances += 1

    def fetched(self, partition: TopicPartition, offset: int, known: int) -> None:
        """A fetch that was sent when ``known`` was acknowledged gave ``offset``."""
        if offset < known:
            raise BrokenPromise(f"{partition} was committed up to {known}, a fetch gives {offset}")

    def process(self, partition: TopicPartition, first: int, last: int) -> None:
        """A member has processed some records."""
        if first > self.processed.get(partition, 0):
            raise BrokenPromise(f"{partition}: {self.processed.get(partition, 0)} to {first} was passed over")
        self.processed[partition] = max(self.processed.get(partition, 0), last)

    def committed(self, partition: TopicPartition, offset: int) -> None:
        """A commit was acknowledged."""
        if offset < self.acknowledged.get(partition, 0):
            raise BrokenPromise(f"{partition} went back from {self.acknowledged[partition]} to {offset}")
        self.acknowledged[partition] = offset
        self.commits += 1
