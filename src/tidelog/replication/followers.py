"""What the leader of a partition knows of its followers, and what follows from it for the high watermark.

A follower tells its position with every fetch: it has everything before the offset that it asks for. It is
*caught up* if that was the end of the leader's log at its last fetch, or was at some fetch not longer ago
than ``replica.lag.time.max.ms``. Only caught-up replicas stay in sync, and the high watermark is the
smallest position among the in-sync replicas and those that are about to be: one that has caught up may be
in sync any moment, and must then have all that is committed.

Pure: time comes in with each call. Owned by ``replication/partition``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from tidelog.ids import NO_OFFSET

NO_BROKER_EPOCH = -1


class Follower:
    """One follower as its leader sees it."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetched_ms",
        "leader_end_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.forget()
        self.caught_up_ms = float("-inf")

    def forget(self) -> None:
        """This broker leads anew: nothing is known of the follower yet."""
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.leader_end_offset = NO_OFFSET
        """Where the leader's log ended at the follower's last fetch."""
        self.fetched_ms = float("-inf")
        self.broker_epoch = NO_BROKER_EPOCH

    def fetched(
        self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: float, broker_epoch: int
    ) -> None:
        """The follower asks for ``offset``, so it has all before it."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = max(leader_end_offset, self.leader_end_offset)
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: float, max_lag_ms: float) -> bool:
        """Whether the follower may be in sync."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= max_lag_ms


class Followers:
    """All followers of one partition, by broker id; empty where this broker has the only replica."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, Follower] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def get(self, broker_id: int) -> Follower | None:
        """A follower, or None if this broker is none of the partition's replicas."""
        return self._by_id.get(broker_id)

    def assign(self, broker_ids: Iterable[int]) -> None:
        """Know these and no others; those that are known stay as they are."""
        known = self._by_id
        self._by_id = {each: known.get(each) or Follower(each) for each in broker_ids}

    def begin_epoch(
        self, isr: Collection[int], leader_end_offset: int, now_ms: float, *, is_new_leader: bool
    ) -> None:
        """A leader epoch begins: in-sync followers have the whole lag time to show themselves."""
        for follower in self._by_id.values():
            in_sync = follower.broker_id in isr
            if is_new_leader:
                follower.forget()
            else:
                follower.leader_end_offset = leader_end_offset
                follower.fetched_ms = now_ms if in_sync else float("-inf")
            # One that is not in sync must not hold the high watermark back.
            follower.caught_up_ms = now_ms if in_sync else float("-inf")

    def committed_offset(
        self,
        leader_end_offset: int,
        maximal_isr: Collection[int],
        live_brokers: Callable[[], Collection[int]],
        now_ms: float,
        max_lag_ms: float,
    ) -> int:
        """Before which offset every replica has everything that is in sync, or may be at any moment.

        A broker that is gone will not be taken in, however well it has kept up till then.
        """
        committed = leader_end_offset
        for follower in self._by_id.values():
            if follower.log_end_offset < committed and (
                follower.broker_id in maximal_isr
                or (
                    follower.broker_id in live_brokers()
                    and follower.is_caught_up(leader_end_offset, now_ms, max_lag_ms)
                )
            ):
                committed = follower.log_end_offset
        return committed

    def lagging(
        self, isr: Collection[int], leader_end_offset: int, now_ms: float, max_lag_ms: float
    ) -> list[int]:
        """The in-sync followers that have fallen behind for too long."""
        return [
            follower.broker_id
            for follower in self._by_id.values()
            if follower.broker_id in isr and not follower.is_caught_up(leader_end_offset, now_ms, max_lag_ms)
        ]

    def holding(self, offset: int, isr: Collection[int]) -> list[Follower]:
        """The in-sync followers whose logs have ``offset`` or end there."""
        return [
            follower
            for follower in self._by_id.values()
            if follower.broker_id in isr and follower.log_start_offset <= offset <= follower.log_end_offset
        ]

    def low_watermark(self, leader_start_offset: int, alive: Collection[int]) -> int:
        """Before which offset every live replica has deleted everything."""
        starts = [
            follower.log_start_offset for follower in self._by_id.values() if follower.broker_id in alive
        ]
        return min([leader_start_offset, *starts])
