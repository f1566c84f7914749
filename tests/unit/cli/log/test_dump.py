from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.records.record import Record, encode_batch
from tidelog.storage.log_dir.checkpoints import RECOVERY_POINT_FILE

Tidelog = Callable[..., tuple[int, str, str]]


def rows(out: str) -> list[dict[str, str]]:
    header, *lines = out.splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def objects(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def last_log(partition_dir: Path) -> Path:
    return sorted(partition_dir.glob("*.log"))[-1]


def test_every_batch_is_a_row(partition_dir: Path, tidelog: Tidelog) -> None:
    code, out, err = tidelog("log", "dump", *sorted(partition_dir.glob("*.log")))
    batches = out.splitlines()
    assert code == 0
    assert len(batches) == 43
    assert batches[0].split("\t")[:2] == ["0..0", "0"]
    assert all(row.endswith("\tok") for row in batches)
    assert len(err.splitlines()) == len(list(partition_dir.glob("*.log")))


def test_records_are_shown_with_keys_values_headers_and_markers(
    partition_dir: Path, tidelog: Tidelog
) -> None:
    code, out, _ = tidelog("log", "dump", "--records", last_log(partition_dir))
    assert code == 0
    assert "null → a  [h=1]" in out
    assert "null → null" in out
    assert "k39 → " + "v" * 50 in out
    assert "ABORT" in out


def test_names_of_headers_forge_no_lines(tmp_path: Path, tidelog: Tidelog) -> None:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(encode_batch([Record(value=b"a", headers=[("h\x1b[2J\ni", b"1")])]))
    code, out, _ = tidelog("log", "dump", "--records", file)
    assert code == 0
    assert r"null → a  [h\x1b[2J\ni=1]" in out


def test_json_holds_everything_in_the_header_and_the_records(partition_dir: Path, tidelog: Tidelog) -> None:
    code, out, _ = tidelog("log", "dump", "--json", "--records", last_log(partition_dir))
    *_, compressed, aborted, marker = objects(out)
    assert code == 0
    assert compressed["codec"] == "gzip"
    assert compressed["record_count"] == 2
    assert [record["value"] for record in compressed["records"]] == ["a", None]  # type: ignore[attr-defined]
    assert (aborted["producer_id"], aborted["transactional"], aborted["control"]) == (9, True, False)
    assert (marker["control"], marker["valid"], marker["problem"]) == (True, True, None)


def test_a_bad_batch_is_marked_and_the_exit_code_is_1(partition_dir: Path, tidelog: Tidelog) -> None:
    path = last_log(partition_dir)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(bytes(data) + b"torn")
    code, out, err = tidelog("log", "dump", path)
    assert code == 1
    assert out.splitlines()[0].endswith("\tBAD bad CRC")
    assert out.splitlines()[-1] == (
        f"BAD from byte {len(data)} to the end (4 bytes): 4 bytes, too few for a batch header"
    )
    assert err == "error: 2 damaged places found, marked BAD in the output\n"
    code, out, _ = tidelog("log", "dump", path, "--json")
    assert code == 1
    assert objects(out)[0]["problem"] == "bad CRC"
    assert objects(out)[-1]["type"] == "torn_tail"


def test_indexes_point_at_their_batches(partition_dir: Path, tidelog: Tidelog) -> None:
    for suffix in ("index", "timeindex"):
        path = sorted(partition_dir.glob(f"*.{suffix}"))[0]
        code, out, _ = tidelog("log", "dump", "--verify-index", "--headings", path)
        assert code == 0
        assert len(rows(out)) > 2
        assert {row["STATE"] for row in rows(out)} == {"ok"}


@pytest.mark.parametrize(
    ("suffix", "byte", "problem"),
    [
        ("index", 7, "no batch starts at position"),
        ("index", 2, "ends at offset"),
        ("timeindex", 7, "max timestamp"),
        ("timeindex", 11, "max timestamp"),
    ],
)
def test_an_index_that_lies_is_found_only_when_asked_to_verify(
    partition_dir: Path, tidelog: Tidelog, suffix: str, byte: int, problem: str
) -> None:
    path = sorted(partition_dir.glob(f"*.{suffix}"))[0]
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    assert tidelog("log", "dump", path)[0] == 0
    code, out, _ = tidelog("log", "dump", path, "--verify-index", "--headings")
    assert code == 1
    assert problem in rows(out)[0]["STATE"]


def test_the_unwritten_rest_of_a_preallocated_index_is_passed_over(
    partition_dir: Path, tidelog: Tidelog
) -> None:
    path = sorted(partition_dir.glob("*.index"))[0]
    expected = tidelog("log", "dump", path)[1]
    with path.open("ab") as file:
        file.truncate(10 * 1024 * 1024)
    assert tidelog("log", "dump", "--verify-index", path)[:2] == (0, expected)


def test_aborted_transactions_and_producers_are_shown(partition_dir: Path, tidelog: Tidelog) -> None:
    [txn] = rows(tidelog("log", "dump", "--headings", *partition_dir.glob("*.txnindex"))[1])
    assert (txn["PRODUCER_ID"], txn["FIRST_OFFSET"], txn["LAST_OFFSET"]) == ("9", "42", "43")
    snapshot = sorted(partition_dir.glob("*.snapshot"))[-1]
    [producer] = rows(tidelog("log", "dump", "--headings", snapshot)[1])
    assert (producer["PRODUCER_ID"], producer["LAST_SEQUENCE"]) == ("9", "0")


def test_checkpoints_and_metadata_are_shown(partition_dir: Path, tidelog: Tidelog) -> None:
    log_dir = partition_dir.parent
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=abc\n")
    epochs = rows(tidelog("log", "dump", "--headings", partition_dir / "leader-epoch-checkpoint")[1])
    assert epochs == [{"EPOCH": "0", "START_OFFSET": "0", "STATE": "ok"}]
    [point] = rows(tidelog("log", "dump", "--headings", log_dir / RECOVERY_POINT_FILE)[1])
    assert (point["TOPIC"], point["PARTITION"], point["OFFSET"]) == ("orders", "0", "0")
    [meta] = objects(tidelog("log", "dump", "--json", log_dir / "meta.properties")[1])
    assert (meta["broker_id"], meta["cluster_id"]) == (3, "abc")
    [topic] = objects(tidelog("log", "dump", "--json", partition_dir / "partition.metadata")[1])
    assert len(str(topic["topic_id"])) == 22


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("00000000000000000005.snapshot", b"\0\1torn", "is only 6 bytes long"),
        ("leader-epoch-checkpoint", b"7\n0\n", "is no leader epoch checkpoint"),
        ("recovery-point-offset-checkpoint", b"0\n2\norders 0 5\n", "promises 2 entries and has 1"),
        ("00000000000000000000.index", b"123", "no multiple of its entries' 8"),
        ("partition.metadata", b"nonsense", "does not hold 'version: 0'"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, tidelog: Tidelog, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    code, _, err = tidelog("log", "dump", tmp_path / name)
    assert code == 1
    assert err.startswith("error: ")
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_what_cannot_be_dumped_is_refused_with_what_can(tmp_path: Path, tidelog: Tidelog) -> None:
    code, _, err = tidelog("log", "dump", tmp_path / "server.properties")
    assert code == 2
    assert "*.timeindex" in err
    code, _, err = tidelog("log", "dump", tmp_path)
    assert code == 2
    assert "tidelog log verify" in err
    code, _, err = tidelog("log", "dump", tmp_path / "00000000000000000000.log")
    assert (code, "no such file" in err) == (1, True)
