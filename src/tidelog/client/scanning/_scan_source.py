"""``ScanSource``: the topic that a scan reads, and the snapshot of its offsets that all its passes share.

Invariant: the snapshot is taken once, by the first pass, and never changes. Passes may run in many threads;
each has connections of its own. Owned by ``topic_scan``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.client._ranges.fetch_link import FetchLink
from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.client._ranges.range_fetcher import RangeSettings
from tidelog.client.errors import BrokerUnreachableError
from tidelog.client.options import ClientConfig
from tidelog.client.scanning._scan_bounds import Bound, find_bounds
from tidelog.errors import ConfigError, ErrorCode, KafkaError


@dataclass(slots=True)
class ScanStatistics:
    """What the passes of a scan have fetched and returned so far."""

    passes: int = 0
    """How many times the topic was read."""
    fetched_bytes: int = 0
    """How many bytes of record batches brokers have sent."""
    decoded_records: int = 0
    """How many records were decoded."""
    decoded_bytes: int = 0
    """How many bytes of keys and values were copied into columns."""
    returned_rows: int = 0
    """How many rows were handed out."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **counts: int) -> None:
        """Add to these counts."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def copy(self) -> ScanStatistics:
        """The counts as they are now."""
        with self._lock:
            return replace(self, _lock=threading.Lock())


class ScanSource:
    """One topic, from one place to another."""

    def __init__(
        self,
        topic: str,
        config: ClientConfig,
        start: Bound,
        end: Bound,
        partitions: tuple[int, ...] | None,
    ) -> None:
        self.topic = topic
        self.start = start
        self.end = end
        self.statistics = ScanStatistics()
        self._config = config
        self._partitions = partitions
        self._snapshot: tuple[OffsetRange, ...] | None = None
        self._lock = threading.Lock()

    def open_link(self) -> FetchLink:
        """Connections for one pass."""
        return FetchLink(self._config)

    def snapshot(self, link: FetchLink | None = None) -> tuple[OffsetRange, ...]:
        """The offsets that are read, by partition; the first call asks the brokers for them."""
        with self._lock:
            if self._snapshot is None:
                own = link or self.open_link()
                try:
                    self._snapshot = own.submit(self._take_snapshot(own)).result()
                finally:
                    if link is None:
                        own.close()
            return self._snapshot

    async def _take_snapshot(self, link: FetchLink) -> tuple[OffsetRange, ...]:
        known = await link.cluster.existing_topic(self.topic)
        numbers = sorted(known.partitions)
        if self._partitions is not None:
            if absent := sorted(set(self._partitions) - set(numbers)):
                raise ConfigError(
                    f"topic {self.topic!r} has no partition {absent[0]}, only 0 to {numbers[-1]}"
                )
            numbers = list(self._partitions)
        bounds = await find_bounds(
            link.cluster, self.topic, numbers, self.start, self.end, link.config.isolation_level
        )
        return tuple(
            OffsetRange(self.topic, number, *bounds[number], known.topic_id) for number in sorted(bounds)
        )

    def range_settings(self) -> RangeSettings:
        """How passes wait, and the errors of those that cannot go on."""
        return RangeSettings(
            poll_timeout_ms=self._config.int("default.api.timeout.ms"),
            broker_timeout_ms=self._config.int("request.timeout.ms"),
            report_loss=_raise_loss,
            no_broker=self._no_broker,
            poll_timeout_option="default.api.timeout.ms",
        )

    def _no_broker(self, timeout_ms: int, cause: BaseException) -> Exception:
        servers: Any = ",".join(self._config.list("bootstrap.servers"))
        return BrokerUnreachableError(
            f"no broker has answered for {timeout_ms / 1000:g} s ({cause}): start the brokers, or change "
            f"bootstrap.servers={servers}"
        )


def _raise_loss(what: str) -> None:
    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{what}; call tidelog.scan again to read what is left")
