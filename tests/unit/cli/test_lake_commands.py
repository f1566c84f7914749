"""`tidelog lake`: what it shows, does and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.lake.object_store import BUCKET, object_store
from tests.unit.spark.lake.rig import (
    COLUMNS,
    DAY,
    NOON,
    TABLE,
    catalog,
    collect,
    data_paths,
    expected,
    ids,
)

from tidelog.cli import commands
from tidelog.cli.lake.command import size_text
from tidelog.spark.lake.catalog import LakeCatalog
from tidelog.spark.lake.lake_note import LakeSettings


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    table = catalog(tmp_path / "lake").ensure(TABLE, COLUMNS)
    for version in range(3):
        collect(table, version, version, when=NOON + (version // 2) * DAY)
    catalog(tmp_path / "lake").ensure("login", COLUMNS)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert commands.run(["lake", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert commands.run(["lake", *arguments]) in (1, 2)
    return capsys.readouterr().err


def test_status_shows_all_tables_or_some(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "status", "-d", str(directory))
    assert [(each["table"], each["rows"], each["files"]) for each in found] == [
        ("credit", 3, 3),
        ("login", 0, 0),
    ]
    (one,) = told(capsys, "status", TABLE, "-d", str(directory))
    assert (one["first_day"], one["last_day"], one["batches"]) == ("2026-11-01", "2026-11-02", {"query": 2})
    assert commands.run(["lake", "status", "-d", str(directory)]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("credit\t3\t3\t3\t")


def test_files_are_those_of_the_table_now(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "files", TABLE, "-d", str(directory))
    assert {Path(each["path"]) for each in found} == data_paths(directory)
    assert commands.run(["lake", "files", "--day", "2026-11-02", "-d", str(directory)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split("\t")[:3] == ["credit", "2026-11-02", "1"]


def test_compaction_and_expiry_say_what_they_would_do_and_do_it(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = data_paths(directory)
    for only_told in (("--dry-run",), ()):
        assert data_paths(directory) == before
        credit, login = told(capsys, "compact", *only_told, "-d", str(directory))
        assert (credit["groups"], credit["files_before"], login["groups"]) == (1, 2, 0)
    assert credit["files_after"] == 1
    everything = (
        "expire",
        "--older-than",
        "0s",
        "--keep",
        "1",
        "--files-older-than",
        "0s",
        "-d",
        str(directory),
    )
    for only_told in (("--dry-run",), ()):
        assert len(data_paths(directory)) == 4
        credit, _ = told(capsys, *everything, *only_told)
        assert credit["snapshots"] == 3
        assert credit["files"] >= 2
    assert len(data_paths(directory)) == 2
    assert ids(directory / "lake") == expected(0, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("status", "credits"), "has no table credits; its tables: credit, login"),
        (("compact", "--target-size", "big"), "--target-size 'big' is no size: write 128MB or 1GB"),
        (("expire", "--older-than", "7"), "--older-than '7' is no age: write 7d, 12h, 30min or 0s"),
        (("files", "--day", "today"), "--day 'today' is no day: write 2026-11-01"),
        (("status", "--lake-catalog", "http://127.0.0.1:1"), "has its catalog in its own directory"),
        (("status", "--lake-warehouse", "s3://b/p"), "has its tables not in an object store of its own"),
        (("status", "--lake-property", "x"), "--lake-property 'x' is not of the form NAME=VALUE"),
        (
            ("status", "--lake-property", "s3.secret-access-key=x"),
            "set PYICEBERG_CATALOG__TIDELOG__S3__SECRET_ACCESS_KEY in the environment",
        ),
        (("status", "--lake-property", "token=x"), "set PYICEBERG_CATALOG__TIDELOG__TOKEN in the env"),
        (("status", "--lake-property", "gcs.oauth2.token=x"), "CATALOG__TIDELOG__GCS__OAUTH2__TOKEN in"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    directory: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused(capsys, *arguments, "-d", str(directory))


def test_a_table_that_cannot_be_tidied_up_keeps_no_other_from_it(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = directory / "lake" / "unneeded"
    notes.mkdir()
    (notes / f"{TABLE}.json").write_text("[")
    assert commands.run(["lake", "expire", "--json", "-d", str(directory)]) == 1
    answer = capsys.readouterr()
    assert [each["table"] for each in json.loads(answer.out)] == ["login"]
    assert "credit.json cannot be read" in answer.err


def test_a_directory_without_a_lake_stays_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no lake in" in refused(capsys, "status", "-d", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["status", "files", "compact", "expire"])
def test_a_lake_of_plain_parquet_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "lake" / "credit" / "date=2026-11-01").mkdir(parents=True)
    told = refused(capsys, command, "-d", str(tmp_path))
    assert f"the lake {tmp_path}/lake is plain Parquet, which this version does not read: delete it" in told
    assert "Traceback" not in told


def test_other_commands_load_nothing_of_it() -> None:
    script = "import sys, tidelog.cli.pipeline.command, tidelog.cli.lake.command; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"pyiceberg", "pyarrow", "sqlalchemy", "pyspark"} & set(done.stdout.split())


def test_sizes_are_written_short() -> None:
    assert [size_text(size) for size in (870, 1536, 13_107_200, 5 << 40)] == [
        "870 B",
        "1.5 KB",
        "12.5 MB",
        "5120.0 GB",
    ]


def test_a_lake_in_an_object_store_is_kept_up_by_its_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        settings = LakeSettings(
            tmp_path / "lake", properties=store.properties, warehouse=f"s3://{BUCKET}/events"
        )
        table = LakeCatalog(settings).ensure(TABLE, COLUMNS)
        for version in range(3):
            collect(table, version, version)
        place = (*store.options, "-d", str(tmp_path))
        [status] = told(capsys, "status", *place)
        assert (status["rows"], status["files"]) == (3, 3)
        [compacted] = told(capsys, "compact", *place)
        assert (compacted["files_before"], compacted["files_after"]) == (3, 1)
        everything = ("expire", "--older-than", "0s", "--keep", "1", *place, "--files-older-than")
        told(capsys, *everything, "1d")
        assert len(store.objects()) == 4
        told(capsys, *everything, "0s")
        [file] = told(capsys, "files", TABLE, *place)
        assert {file["path"]} == store.objects()
