"""Kafka's DumpLogSegments, of 3.9 and 4.x, on the files of a broker with some history: no complaint."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat import workload
from tests.compat.conftest import BROKER_OPTIONS, BROKERS, available

DUMP = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS = re.compile(
    r"mismatch|out of order|isvalid: false|exception|corrupt|invalid|is too old|missing|error",
    re.IGNORECASE,
)

Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", params=BROKERS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a broker that was filled and stopped in good order."""
    kind = {"tidelog": Tidelog, "apache": ApacheKafka}[request.param]
    broker: BrokerProcess = kind(tmp_path_factory.mktemp("dumped"), BROKER_OPTIONS)
    with available():
        broker.start()
    try:
        workload.write(broker.address)
        assert broker.stop() in (0, 143)
        yield broker.data_dir
    finally:
        broker.kill()


def files(directory: Path, suffix: str, only: str = "*") -> list[Path]:
    """Files of the topics' partitions; the metadata log of a KRaft broker is no topic."""
    return sorted(
        each for each in directory.glob(f"{only}/*.{suffix}") if not each.parent.name.startswith("__")
    )


def dump(tool: Tool, paths: list[Path], *options: str) -> str:
    assert paths
    done = tool(DUMP, *options, "--files", ",".join(map(str, paths)), timeout=180)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr  # it complains on stderr and ends with 0


def complaints(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if COMPLAINTS.search(line)]


def gaps(printed: str) -> list[tuple[int, int]]:
    """Neighbours that are not consecutive; Kafka 4's tool takes -1 for what precedes a segment's first."""
    pairs = re.findall(r"^\s*(-?\d+) is followed by (\d+)", printed, re.MULTILINE)
    return [(int(one), int(other)) for one, other in pairs if int(one) != -1]


def test_segments_are_sound_down_to_every_record(kafka_tool: Tool, written: Path) -> None:
    logs = [each for each in files(written, "log") if each.parent.name != f"{workload.COMPACTED}-0"]
    printed = dump(kafka_tool, logs, "--deep-iteration")
    assert complaints(printed) == []
    assert gaps(printed) == []
    codecs = set(re.findall(r"compresscodec: (\w+)", printed, re.IGNORECASE))
    assert {each.lower() for each in codecs} == set(workload.CODECS)
    assert len(re.findall(r"isvalid: true", printed)) == len(
        re.findall(r"^baseOffset:", printed, re.MULTILINE)
    )
    assert len(files(written, "log", "codec-zstd-0")) > 1, "the workload was to roll segments"


def test_a_compacted_segment_is_sound_and_shorter(kafka_tool: Tool, written: Path) -> None:
    printed = dump(kafka_tool, files(written, "log", f"{workload.COMPACTED}-0"), "--deep-iteration")
    assert complaints(printed) == []
    assert gaps(printed) != [], "compaction leaves gaps"
    assert len(re.findall(r"^\| offset:", printed, re.MULTILINE)) < 3500


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes_pass_the_sanity_check(kafka_tool: Tool, written: Path, suffix: str) -> None:
    indexes = [each for each in files(written, suffix) if each.stat().st_size > 0]
    printed = dump(kafka_tool, indexes, "--index-sanity-check")
    assert printed.count("passed sanity check") == len(indexes)
    assert complaints(printed) == []


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes_agree_with_their_segments(kafka_tool: Tool, written: Path, suffix: str) -> None:
    printed = dump(kafka_tool, files(written, suffix), "--verify-index-only")
    assert complaints(printed) == []


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_index_entries_are_listed_without_complaint(kafka_tool: Tool, written: Path, suffix: str) -> None:
    printed = dump(kafka_tool, files(written, suffix))
    assert complaints(printed) == []
    assert len(re.findall(r"^(?:offset: \d+ position|timestamp: \d+ offset)", printed, re.MULTILINE)) > 100


def test_the_tool_would_complain_of_a_damaged_index(kafka_tool: Tool, written: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "acks-1-0"
    shutil.copytree(written / damaged.name, damaged)
    for index in files(tmp_path, "index"):
        entries = bytearray(index.read_bytes())
        entries[7] ^= 0x10  # the position in the first entry
        index.write_bytes(entries)
    assert complaints(dump(kafka_tool, files(tmp_path, "index"), "--verify-index-only")) != []


def test_producer_snapshots_are_read(kafka_tool: Tool, written: Path) -> None:
    snapshots = files(written, "snapshot", "codec-*")
    printed = dump(kafka_tool, snapshots)
    assert complaints(printed) == []
    assert re.search(r"producerId: \d+ producerEpoch: 0", printed)
    assert re.search(r"lastSequence: \d+", printed)


def test_transaction_indexes_are_read(kafka_tool: Tool, written: Path) -> None:
    printed = dump(kafka_tool, files(written, "txnindex"))
    assert complaints(printed) == []
    assert re.search(r"producerId: \d+ firstOffset: \d+ lastOffset: \d+", printed)
