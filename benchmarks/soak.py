"""Whether a broker that is watched keeps its size: `python -m benchmarks soak --minutes 30`.

A producer and a group of librdkafka write and read without a break; every five seconds somebody scrapes all
pages of the metrics listener and a client with a name that was never heard before comes, asks and goes.
Retention keeps what lies on disk at a few megabytes, and a quota holds one more producer back. Each scrape
notes the memory of the broker's process.

The verdict is by the slope of that curve, without its first third, in which buffers and indexes find their
size: the median of the slopes between any two samples (Theil and Sen), so that single peaks do not count. It
is flat if what that slope adds up to over the measured time is below 2 % of the memory in use, or one
megabyte.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tidelog import Admin, NewTopic
from tidelog.client.admin.quotas import QuotaAlteration
from tidelog.testing.broker_process import BrokerProcess

TOPIC = "soak"
PAGES = ("/metrics", "/clients", "/requests", "/throttled", "/ready")
OPTIONS = {
    "metrics.listeners": "127.0.0.1:0",
    "log.segment.bytes": "4000000",
    "log.retention.bytes": "8000000",
    "log.retention.check.interval.ms": "5000",
    "offsets.topic.num.partitions": "1",
}
VALUE = b"x" * 200
GREEDY, GREEDY_BYTES = "soak-greedy", 5000.0
TIMEOUT_S = 30.0
WARM_UP = 1 / 3
MOST_SHARE = 0.02
MOST_BYTES = 1_000_000
_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 60


@dataclass(frozen=True)
class Sample:
    """One scrape."""

    at_s: float
    rss_bytes: int
    page_bytes: int
    scrape_ms: float


@dataclass(frozen=True)
class Verdict:
    """What the curve says."""

    flat: bool
    bytes_per_minute: float
    grown_bytes: float
    """What the slope adds up to over the measured time."""
    allowed_bytes: float
    measured_s: float


def judge(samples: Sequence[Sample]) -> Verdict:
    """The verdict on a curve; what is too short to be judged is not flat."""
    measured = [each for each in samples if each.at_s >= samples[-1].at_s * WARM_UP]
    if len(measured) < 10:
        return Verdict(False, 0.0, 0.0, 0.0, 0.0)
    slope = statistics.median(
        (later.rss_bytes - earlier.rss_bytes) / (later.at_s - earlier.at_s)
        for earlier, later in combinations(measured, 2)
    )
    seconds = measured[-1].at_s - measured[0].at_s
    allowed = max(MOST_SHARE * statistics.median(each.rss_bytes for each in measured), MOST_BYTES)
    return Verdict(slope * seconds <= allowed, slope * 60, slope * seconds, allowed, seconds)


def curve(samples: Sequence[Sample]) -> str:
    """The memory as a line of blocks, from its least to its most."""
    step = max(len(samples) / _CURVE_WIDTH, 1.0)
    some = [samples[int(at * step)].rss_bytes for at in range(int(len(samples) / step))]
    least, most = min(some), max(some)
    return "".join(_BLOCKS[int((each - least) / max(most - least, 1) * 7.99)] for each in some)


class Load:
    """Writes and reads until it is told to stop; a failure of it is a failure of the soak."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        self.written = self.read = 0
        self.failure: Exception | None = None
        self._bootstrap = bootstrap
        self._rate = rate
        self._stop = threading.Event()
        work = (self._write, self._take, self._write_too_much)
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in work]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _run(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except Exception as error:
            # Told by the main thread, which would else watch a broker at rest.
            self.failure = error

    def _write(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "client.id": "soak-writer", "linger.ms": 5}
        )
        began_s = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - began_s) * self._rate)
            while self.written < due and len(producer) < 50_000:
                producer.produce(TOPIC, VALUE)
                self.written += 1
            producer.poll(0.01)
        producer.flush(TIMEOUT_S)

    def _write_too_much(self) -> None:
        """As much as its quota lets it, and a little under way at once: what waits for long times out."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": GREEDY,
                "max.in.flight.requests.per.connection": 1,
                "batch.num.messages": 20,
            }
        )
        while not self._stop.is_set():
            if len(producer) < 50:
                producer.produce(TOPIC, VALUE)
            producer.poll(0.01)
        producer.flush(TIMEOUT_S)

    def _take(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "soak-readers",
                "client.id": "soak-reader",
                "auto.offset.reset": "latest",
            }
        )
        consumer.subscribe([TOPIC])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is not None:
                        raise KafkaException(error)
                    self.read += 1
        finally:
            consumer.close()


def watch(broker: BrokerProcess, load: Load, minutes: float, every_s: float) -> Iterator[Sample]:
    """Scrape again and again; each sample when it was taken."""
    found = re.search(r"Metrics are at (http://\S+)/metrics", broker.log)
    assert found is not None
    began_s = time.monotonic()
    number = 0
    while time.monotonic() - began_s < minutes * 60:
        if load.failure is not None:
            raise load.failure
        scraped_s = time.monotonic()
        try:
            size = sum(_scrape(found[1] + path) for path in PAGES)
        except OSError as error:
            # A machine that is busy with other things: no sample, and no end of the soak.
            print(f"{(scraped_s - began_s) / 60:5.1f} min  no scrape: {error}", flush=True)
            continue
        took_ms = (time.monotonic() - scraped_s) * 1000
        # Somebody new each time: names are not to pile up.
        stranger = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": f'stranger "{number}"\n'})
        stranger.list_topics(timeout=TIMEOUT_S)
        del stranger
        yield Sample(scraped_s - began_s, broker.rss_bytes, size, took_ms)
        number += 1
        time.sleep(max(began_s + number * every_s - time.monotonic(), 0.0))


def _scrape(url: str) -> int:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return len(answer.read())


def main(given: Sequence[str] | None = None) -> int:
    """Soak a broker, show the curve; 1 if it is not flat."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="for how long (default: %(default)s)")
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between scrapes (default: %(default)s)"
    )
    parser.add_argument("--rate", type=float, default=2000.0, help="records a second (default: %(default)s)")
    parser.add_argument("--data-root", type=Path, default=Path("/dev/shm"), help="where data goes")
    parser.add_argument("--json", type=Path, help="write all samples there")
    arguments = parser.parse_args(given)
    samples: list[Sample] = []
    with (
        tempfile.TemporaryDirectory(dir=arguments.data_root) as directory,
        BrokerProcess(Path(directory) / "data", options=OPTIONS) as broker,
    ):
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for made in admin.create_topics([NewTopic(TOPIC, 3)]):
                made.raise_for_error()
            quota = QuotaAlteration({"client-id": GREEDY}, {"producer_byte_rate": GREEDY_BYTES})
            for set_ in admin.alter_client_quotas([quota]):
                set_.raise_for_error()
        with Load(broker.bootstrap, arguments.rate) as load, contextlib.suppress(KeyboardInterrupt):
            for sample in watch(broker, load, arguments.minutes, arguments.every):
                samples.append(sample)
                if not (len(samples) - 1) % max(int(60 / arguments.every), 1):
                    print(
                        f"{sample.at_s / 60:5.1f} min  {sample.rss_bytes / 1e6:6.1f} MB  scrape "
                        f"{sample.scrape_ms:6.1f} ms, {sample.page_bytes} bytes  "
                        f"{load.written} written, {load.read} read",
                        flush=True,
                    )
    verdict = judge(samples)
    if arguments.json is not None:
        told = {"verdict": asdict(verdict), "samples": [asdict(each) for each in samples]}
        arguments.json.write_text(json.dumps(told, indent=1))
    sizes = [each.rss_bytes for each in samples]
    print(f"{min(sizes) / 1e6:.1f} MB {curve(samples)} {max(sizes) / 1e6:.1f} MB")
    print(
        f"{'flat' if verdict.flat else 'NOT FLAT'}: {verdict.bytes_per_minute / 1000:+.1f} kB a minute, "
        f"{verdict.grown_bytes / 1e6:+.2f} MB in {verdict.measured_s / 60:.1f} measured minutes; "
        f"{verdict.allowed_bytes / 1e6:.2f} MB are allowed"
    )
    return 0 if verdict.flat else 1
