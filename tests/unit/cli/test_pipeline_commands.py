"""`tidelog pipeline`: what it refuses, and what it shows without Spark."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidelog.cli import commands
from tidelog.cli.pipeline import backfill
from tidelog.cli.pipeline import run as running
from tidelog.cli.pipeline.backfill import parse_range
from tidelog.cli.pipeline.monitors import Monitors
from tidelog.cli.pipeline.status import age_text
from tidelog.errors import TidelogError
from tidelog.spark.pipelines import registry
from tidelog.spark.pipelines.pipeline import BackfillReport
from tidelog.spark.settings import PipelineSettings

NOWHERE = ("--bootstrap-server", "127.0.0.1:1")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = commands.run(["pipeline", *arguments])
    return code, capsys.readouterr().err


def test_list_names_every_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["pipeline", "list"]) == 0
    names = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["collect", "account-switch", "invite-fraud", "phone-region", "earnings"]


@pytest.mark.parametrize("name", list(registry.installed()))
def test_a_pipeline_is_loaded_without_spark(name: str) -> None:
    script = (
        "import sys\nfrom tidelog.spark.pipelines import registry\n"
        f"registry.load({name!r})\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert "tidelog.spark.pipelines.pipeline" in done.stdout.split()
    assert not {"pyspark", "pyarrow", "phonenumbers"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "earning"), "there is no pipeline 'earning'; did you mean earnings?"),
        (("status", "earning"), "there is no pipeline 'earning'; did you mean earnings?"),
        (("run", "xyz"), "there is no pipeline 'xyz'; there are collect, account-switch,"),
        (("run", "earnings", "--trigger", "often"), "--trigger 'often' is no time: write `2 seconds`"),
        (("run", "earnings", "--language", "xx"), "--language xx: there are names in ar, de, en,"),
        (("run", "earnings", "--country", "XX"), "--country XX is no country: write its ISO 3166 code"),
        (("run", "earnings", "--conf", "spark"), "--conf 'spark' is not of the form NAME=VALUE"),
        (
            ("backfill", "earnings", "--from", "yesterday", "--to", "2026-11-02"),
            "--from 'yesterday' is no time: write 2026-11-01",
        ),
        (
            ("backfill", "earnings", "--from", "2026-11-02", "--to", "2026-11-02"),
            "--from 2026-11-02 is not before --to 2026-11-02",
        ),
    ],
)
def test_a_wrong_command_line_is_refused_with_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    code, error = run(capsys, *arguments, *NOWHERE)
    assert code == 2
    assert sentence in error


@pytest.mark.parametrize(
    "arguments", [("run", "earnings"), ("backfill", "earnings", "--from", "2026-11-01", "--to", "2026-11-02")]
)
def test_without_spark_one_sentence_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))
    code, error = run(capsys, *arguments, *NOWHERE)
    assert code == 1
    assert error == ('error: pipelines run on Spark, which is not installed: pip install "tidelog[spark]"\n')


def test_parallelism_is_told_to_the_pipelines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[PipelineSettings] = []
    monkeypatch.setattr(running, "run", lambda pipelines, settings, *others, **more: told.append(settings))
    given = ("--min-partitions", "6", "--state-partitions", "3", "--trigger", "5 seconds")
    assert run(capsys, "run", "earnings", *given, *NOWHERE) == (0, "")
    assert run(capsys, "run", "earnings", *NOWHERE) == (0, "")
    assert [(each.min_partitions, each.state_partitions, each.trigger) for each in told] == [
        (6, 3, "5 seconds"),
        (None, None, "2 seconds"),
    ]
    code, error = run(capsys, "run", "earnings", "--state-partitions", "0", *NOWHERE)
    assert code == 2
    assert "--state-partitions" in error


CASSANDRA = ("run", "earnings", "--cassandra", "db1,db2:9043")


def test_options_for_cassandra_come_from_a_file_and_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[PipelineSettings] = []
    monkeypatch.setattr(running, "run", lambda pipelines, settings, *others, **more: told.append(settings))
    file = tmp_path / "cassandra.properties"
    file.write_text("user=app\npassword=of the file\nlocal.datacenter=east\nttl=login:7d\n")
    given = ("--cassandra-config", str(file), "--cassandra-set", "local.datacenter=west", "--keyspace", "k1")
    assert run(capsys, *CASSANDRA, *given, *NOWHERE) == (0, "")
    [settings] = told
    options = settings.cassandra_options
    assert (settings.cassandra, settings.keyspace) == ("db1,db2:9043", "k1")
    assert (options.user, options.password, options.local_datacenter) == ("app", "of the file", "west")
    assert options.ttl_of("login") == 7 * 86_400


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "all", "--cassandra-set", "user=a"), "--cassandra-set has no effect without --cassandra"),
        ((*CASSANDRA, "--cassandra-set", "user"), "--cassandra-set 'user' is not of the form NAME=VALUE"),
        ((*CASSANDRA, "--cassandra-set", "password=geheim"), "shows the password to everybody"),
        ((*CASSANDRA, "--cassandra-set", "consistency.read=ONE"), "consistency.read=ONE may miss what was"),
        ((*CASSANDRA, "--cassandra-set", "ttl=user_tasks:1d"), "rows of table user_tasks must stay"),
        ((*CASSANDRA, "--keyspace", "a-b"), "'a-b' is no keyspace of Cassandra"),
        (("run", "all", "--cassandra", "db:port"), "'db:port' is no contact point of Cassandra"),
    ],
)
def test_wrong_options_for_cassandra_are_refused_before_spark(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    code, error = run(capsys, *arguments, *NOWHERE)
    assert code == 2
    assert sentence in error
    assert "geheim" not in error


def test_a_range_is_utc_and_takes_days_and_moments() -> None:
    found = parse_range("2026-11-01", "2026-11-02T03:00:00+02:00")
    assert found.start == datetime(2026, 11, 1, tzinfo=UTC)
    assert found.end == datetime(2026, 11, 2, 1, tzinfo=UTC)
    assert found.end.utcoffset() == found.start.utcoffset()


@pytest.mark.parametrize(
    ("age_s", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages_are_told_in_the_unit_that_fits(age_s: float, text: str) -> None:
    assert age_text(age_s) == text


def test_the_file_for_spark_submit_tells_where_it_is() -> None:
    module = [sys.executable, "-m", "tidelog.cli.pipeline_submit", "--path"]
    done = subprocess.run(module, capture_output=True, text=True, timeout=60, check=True)
    assert Path(done.stdout.strip()).name == "pipeline_submit.py"
    assert Path(done.stdout.strip()).is_file()


@pytest.mark.parametrize(
    ("monitors", "sentence"),
    [
        (Monitors("https://127.0.0.1:9405"), "this page has no TLS"),
        (Monitors("nowhere"), "--metrics has 'nowhere', which is no address"),
        (Monitors(otlp="collector"), "--otlp is 'collector'"),
        (Monitors(otlp="http://c", otlp_headers="no value"), "--otlp-headers: header 'no value'"),
    ],
)
def test_monitors_that_cannot_be_served_are_refused(monitors: Monitors, sentence: str) -> None:
    with pytest.raises(TidelogError, match=sentence):
        monitors.export([])


def test_searches_that_a_backfill_has_given_up_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    whole = BackfillReport(9, {"topic alerts": 2}, 1)
    reports = {"account-switch": whole, "invite-fraud": replace(whole, dropped=3)}
    backfill.show(reports, json=False)
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        f"{name}\t9\ttopic alerts\t2\t1" for name in ("account-switch", "invite-fraud")
    ]
    assert told.err == "invite-fraud: 3 searches given up, too large to be judged\n"
    backfill.show(reports, json=True)
    found = json.loads(capsys.readouterr().out)
    assert [each["dropped"] for each in found] == [0, 3]
    assert (found[1]["read"], found[1]["written"], found[1]["dead_letters"]) == (9, {"topic alerts": 2}, 1)
