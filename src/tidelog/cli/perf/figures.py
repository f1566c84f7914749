"""What ``perf`` counts, and how it is written: pure, times are given by the callers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

MB = 1024 * 1024
SAMPLES = 500_000
"""At most so many latencies are kept, evenly over the run."""

PRODUCE_PERCENTILES = (0.5, 0.95, 0.99, 0.999)
LATENCY_PERCENTILES = (0.5, 0.99, 0.999)


def percentiles(latencies: Sequence[float], wanted: Sequence[float]) -> list[float]:
    """The latency that this part of all does not exceed; all 0 where there are none."""
    ordered = sorted(latencies)
    return [ordered[int(part * len(ordered))] if ordered else 0.0 for part in wanted]


def percentile_name(part: float) -> str:
    """``p50``, ``p99``, ``p999``: for programs."""
    return "p" + f"{part * 100:g}".replace(".", "")


def moment_text(time_s: float) -> str:
    """A time as kafka-consumer-perf-test writes it, in this machine's zone."""
    moment = datetime.fromtimestamp(time_s)
    return moment.strftime("%Y-%m-%d %H:%M:%S:") + f"{moment.microsecond // 1000:03d}"


@dataclass
class SendWindow:
    """What was acknowledged since the last line."""

    began_s: float
    records: int = 0
    bytes: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def as_json(self, now_s: float) -> dict[str, object]:
        """For programs."""
        elapsed_s = max(now_s - self.began_s, 1e-9)
        return {
            "records": self.records,
            "records_per_second": self.records / elapsed_s,
            "mb_per_second": self.bytes / elapsed_s / MB,
            "latency_avg_ms": self.total_ms / self.records if self.records else 0.0,
            "latency_max_ms": self.max_ms,
        }

    def line(self, now_s: float) -> str:
        """As kafka-producer-perf-test writes it."""
        elapsed_s = max(now_s - self.began_s, 1e-9)
        average = self.total_ms / self.records if self.records else 0.0
        return (
            f"{self.records} records sent, {self.records / elapsed_s:.1f} records/sec "
            f"({self.bytes / elapsed_s / MB:.2f} MB/sec), {average:.1f} ms avg latency, "
            f"{self.max_ms:.1f} ms max latency."
        )


@dataclass
class SendFigures:
    """Latencies of acknowledged records, over the whole run and since the last line."""

    expected: int
    began_s: float
    steady: bool = False
    """Whether the records before these were to warm up."""
    records: int = 0
    bytes: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    window: SendWindow = field(init=False)
    samples: array[float] = field(default_factory=lambda: array("d"))

    def __post_init__(self) -> None:
        self.window = SendWindow(self.began_s)
        self._every = max(self.expected // SAMPLES, 1)

    def add(self, latency_ms: float, size: int) -> None:
        """One record was acknowledged."""
        if self.records % self._every == 0:
            self.samples.append(latency_ms)
        self.records += 1
        self.bytes += size
        self.total_ms += latency_ms
        window = self.window
        window.records += 1
        window.bytes += size
        window.total_ms += latency_ms
        if latency_ms > window.max_ms:
            window.max_ms = latency_ms
            if latency_ms > self.max_ms:
                self.max_ms = latency_ms

    def next_window(self, now_s: float) -> SendWindow:
        """The window that ends now; another begins."""
        ended, self.window = self.window, SendWindow(now_s)
        return ended

    def line(self, now_s: float) -> str:
        """The summary as kafka-producer-perf-test writes it."""
        whole = SendWindow(self.began_s, self.records, self.bytes, self.total_ms, self.max_ms).as_json(now_s)
        values = percentiles(self.samples, PRODUCE_PERCENTILES)
        parts = (
            f"{int(value)} ms {100 * part:g}th"
            for part, value in zip(PRODUCE_PERCENTILES, values, strict=True)
        )
        return (
            f"{self.records}{' steady state' if self.steady else ''} records sent, "
            f"{whole['records_per_second']:f} records/sec ({whole['mb_per_second']:.2f} MB/sec), "
            f"{whole['latency_avg_ms']:.2f} ms avg latency, {self.max_ms:.2f} ms max latency, "
            f"{', '.join(parts)}."
        )

    def as_json(self, now_s: float) -> dict[str, object]:
        """The summary for programs."""
        whole = SendWindow(self.began_s, self.records, self.bytes, self.total_ms, self.max_ms).as_json(now_s)
        values = percentiles(self.samples, PRODUCE_PERCENTILES)
        named = zip(PRODUCE_PERCENTILES, values, strict=True)
        return {
            **whole,
            "seconds": now_s - self.began_s,
            **{f"latency_{percentile_name(part)}_ms": value for part, value in named},
        }


READ_COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


@dataclass(frozen=True)
class ReadFigures:
    """What was read between two moments; ``rebalance_s`` of it nothing could be."""

    began_s: float
    ended_s: float
    bytes: int
    records: int
    rebalance_s: float

    @property
    def fetch_s(self) -> float:
        """The time in which records could come."""
        return max(self.ended_s - self.began_s - self.rebalance_s, 0.0)

    def columns(self, total_bytes: int, total_records: int) -> str:
        """The figures as kafka-consumer-perf-test writes them, beside totals."""
        elapsed_s = max(self.ended_s - self.began_s, 1e-9)
        megabytes = self.bytes / MB
        return (
            f"{total_bytes / MB:.4f}, {megabytes / elapsed_s:.4f}, "
            f"{total_records}, {self.records / elapsed_s:.4f}, "
            f"{self.rebalance_s * 1000:.0f}, {self.fetch_s * 1000:.0f}, "
            f"{self._per_fetch_second(megabytes):.4f}, {self._per_fetch_second(self.records):.4f}"
        )

    def _per_fetch_second(self, count: float) -> float:
        return count / self.fetch_s if self.fetch_s else 0.0

    def as_json(self) -> dict[str, object]:
        """For programs."""
        elapsed_s = max(self.ended_s - self.began_s, 1e-9)
        return {
            "start_time": moment_text(self.began_s),
            "end_time": moment_text(self.ended_s),
            "mb": self.bytes / MB,
            "mb_per_second": self.bytes / MB / elapsed_s,
            "records": self.records,
            "records_per_second": self.records / elapsed_s,
            "rebalance_ms": self.rebalance_s * 1000,
            "fetch_ms": self.fetch_s * 1000,
            "fetch_mb_per_second": self._per_fetch_second(self.bytes / MB),
            "fetch_records_per_second": self._per_fetch_second(self.records),
        }


def latency_lines(latencies_ms: Sequence[float]) -> list[str]:
    """The summary as EndToEndLatency writes it."""
    values = percentiles(latencies_ms, LATENCY_PERCENTILES)
    named = zip(LATENCY_PERCENTILES, values, strict=True)
    parts = (f"{100 * part:g}th = {int(value)}" for part, value in named)
    average = sum(latencies_ms) / max(len(latencies_ms), 1)
    return [f"Avg latency: {average:.4f} ms", f"Percentiles: {', '.join(parts)}"]


def latency_json(latencies_ms: Sequence[float]) -> dict[str, object]:
    """The summary for programs, whose percentiles are not cut to whole milliseconds."""
    values = percentiles(latencies_ms, LATENCY_PERCENTILES)
    return {
        "records": len(latencies_ms),
        "latency_avg_ms": sum(latencies_ms) / max(len(latencies_ms), 1),
        "latency_max_ms": max(latencies_ms, default=0.0),
        **{
            f"latency_{percentile_name(part)}_ms": value
            for part, value in zip(LATENCY_PERCENTILES, values, strict=True)
        },
    }
