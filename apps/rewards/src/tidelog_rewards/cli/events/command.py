"""``tidelog events``: make traffic for the pipelines, and hold their alerts against what was planted."""

from __future__ import annotations

import contextlib
import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connect import reached_options
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import counted, examples, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.cli.values import parse_time_ms
from tidelog_rewards.cli.events.progress import Progress

if TYPE_CHECKING:
    from tidelog_rewards.detection.detection_report import DetectionReport
    from tidelog_rewards.generator.delivery import Destination

app = typer.Typer()

_STDOUT = "-"


@app.command(
    epilog=examples(
        "tidelog events generate --rate 5000 --seconds 60 --truth truth.jsonl",
        "tidelog events generate --speed 60 --daily-curve",
        "tidelog events generate --count 100000 --fast --start 2026-01-05T00:00:00Z",
        "tidelog events generate --count 1000 --out - | head -1",
    )
)
@grouped
def generate(
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Events per second.")] = 5000.0,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0.0, help="Stop after this time.", show_default="Ctrl-C stops it"),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this many events.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="The same seed, start and rates make the same bytes.")
    ] = 7,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", metavar="TIME", help="The time of the first event.", show_default="so that it ends now"
        ),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(
            "--speed", min=0.001, max=1e6, help="Seconds of event time per second: 60 makes an hour a minute."
        ),
    ] = 1.0,
    users: Annotated[
        int | None, typer.Option("--users", min=1, help="Users at the start.", show_default="by the rate")
    ] = None,
    fraud: Annotated[
        float, typer.Option("--fraud", min=0.0, help="How much fraud is planted: 0 none, 2 twice the usual.")
    ] = 1.0,
    daily_curve: Annotated[
        bool, typer.Option("--daily-curve", help="Have the rate follow the day; --rate is then its mean.")
    ] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="As fast as possible; the events' times stay as with --rate.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="DIR|-",
            help="Write <topic>.jsonl files, or lines to stdout, instead of to a broker (and --fast).",
            show_default=False,
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            metavar="FILE",
            help="Where to tell what was planted, for `tidelog events score`.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Of topics that are missing.")] = 4,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Make the app's events: all topics, realistic sessions, planted fraud with a known truth.

    Events go to a broker in real time; missing topics are created. Some events arrive late, some twice, a
    few are damaged: the truth file tells which.
    """
    from tidelog_rewards.generator.delivery import deliver, stop_request
    from tidelog_rewards.generator.traffic import Traffic, TrafficSettings
    from tidelog_rewards.generator.truth import truth_file

    if out is not None and seconds is None and count is None:
        raise WrongUsage("--out needs an end: say --count or --seconds")
    if json and out == _STDOUT:
        raise WrongUsage("--out - writes the events to stdout: leave out --json, or write to a directory")
    paced = not fast and out is None
    settings = TrafficSettings(
        _start(start, seconds, speed, paced), seed, rate, speed, users, fraud, daily_curve
    )
    simulated_time = speed != 1 or start is not None or not paced
    chosen = _destination(out, connection, partitions, simulated_time)
    with (
        stop_request() as stopped,
        truth_file(truth) as known,
        chosen as destination,
        Progress(settings, shown=not quiet and out != _STDOUT) as progress,
    ):
        traffic = Traffic(settings, known)
        progress.follow(traffic)
        deliver(
            traffic,
            destination,
            paced=paced,
            seconds=seconds,
            count=count,
            stopped=stopped,
            on_batch=progress.sent,
        )
    if json:
        print_json(progress.figures())
    else:
        remark(progress.summary())


@app.command(
    epilog=examples(
        "tidelog events score --truth truth.jsonl",
        "tidelog events score --truth truth.jsonl --require 0.95",
        "tidelog events score --adversaries 1000-1009",
        "tidelog events score --adversaries 1-5 --rules mine.toml --json",
    )
)
@grouped
def score(
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="What `tidelog events generate --truth` has written.",
            show_default=False,
        ),
    ] = None,
    adversaries: Annotated[
        str | None,
        typer.Option(
            "--adversaries",
            metavar="SEED[-SEED]",
            help="Rather hold rules against generated cheats; needs no broker. Tune below 1000 only.",
            show_default=False,
        ),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules",
            metavar="FILE",
            help="Rules to hold against adversaries.",
            show_default="the package's",
        ),
    ] = None,
    require: Annotated[
        float | None,
        typer.Option(
            "--require",
            min=0.0,
            max=1.0,
            help="Exit with 1 where precision or recall is lower: of a rule, or of adversaries within reach.",
            show_default=False,
        ),
    ] = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Hold the alerts of account-switch and invite-fraud against the truth, or rules against adversaries."""
    if (truth is None) == (adversaries is None):
        raise WrongUsage("give either --truth FILE, to score alerts, or --adversaries SEED[-SEED]")
    if adversaries is not None:
        from tidelog_rewards.cli.events.adversaries import show

        show(adversaries, rules, require, json=json)
        return
    if rules is not None:
        raise WrongUsage("--rules is for --adversaries: alerts in topics have the rules they were raised by")
    assert truth is not None
    from tidelog_rewards.detection import detection_report

    options = reached_options(connection, {"client.id": "tidelog-events-score"})
    report = detection_report.score(detection_report.read_truth(truth), detection_report.read_alerts(options))
    if json:
        print_json(_score_json(report))
    else:
        print_table(
            ("pipeline", "rule", "planted", "found", "recall", "alerts", "false", "precision"),
            [
                (
                    rule.pipeline,
                    rule.rule,
                    rule.planted,
                    rule.found,
                    _share(rule.recall),
                    rule.alerts,
                    rule.false_alarms,
                    _share(rule.precision),
                )
                for rule in report.rules
            ],
            right=("planted", "found", "recall", "alerts", "false", "precision"),
        )
        cases, accused = sum(report.honest_cases.values()), sum(report.accused.values())
        which = ", ".join(f"{number} {case}" for case, number in report.accused.items())
        remark(f"{accused} of {counted(cases, 'honest lookalike')} accused{which and f': {which}'}")
    if require is not None:
        _insist(report, require)


def _insist(report: DetectionReport, minimum: float) -> None:
    if not any(rule.planted for rule in report.rules):
        raise Failure("the truth file has no complete incident: generate more events, or raise --fraud")
    bad = report.below(minimum)
    if bad:
        names = ", ".join(f"{rule.pipeline}/{rule.rule}" for rule in bad)
        raise Failure(f"precision or recall is below --require {minimum} for {names}")


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _score_json(report: DetectionReport) -> dict[str, object]:
    return {
        "rules": [
            {**dataclasses.asdict(rule), "recall": rule.recall, "precision": rule.precision}
            for rule in report.rules
        ],
        "missed": report.missed,
        "false_alarms": [alert["alert_id"] for alert in report.false_alarms],
        "honest_cases": report.honest_cases,
        "accused": report.accused,
    }


def _start(text: str | None, seconds: float | None, speed: float, paced: bool) -> datetime:
    if text is not None:
        return datetime.fromtimestamp(parse_time_ms(text, "--start") / 1000, UTC)
    now = datetime.now(UTC).replace(microsecond=0)
    if not paced:
        return now.replace(hour=0, minute=0, second=0)
    return now - timedelta(seconds=(speed - 1) * (seconds or 0))


def _destination(
    out: str | None, connection: Connection, partitions: int, simulated_time: bool
) -> contextlib.AbstractContextManager[Destination]:
    from tidelog_rewards.generator import delivery

    if out == _STDOUT:
        return delivery.to_stdout()
    if out is not None:
        return delivery.to_directory(Path(out))
    configs = delivery.SIMULATED_TIME if simulated_time else {}
    options = reached_options(connection, {"client.id": delivery.CLIENT_ID})
    return delivery.to_broker(options, partitions=partitions, topic_configs=configs)
