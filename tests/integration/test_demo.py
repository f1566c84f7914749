"""``tidelog demo``: what it shows, how it ends, and that nothing of it is left behind."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from tidelog.records.record_codec import ConsumerRecord
from tidelog.spark.pipelines import registry
from tidelog_rewards import events
from tidelog_rewards.demo import dashboard
from tidelog_rewards.demo.plain import PlainLines
from tidelog_rewards.demo.results import Results
from tidelog_rewards.demo.truth import Truth
from tidelog_rewards.demo.view import Alert, Flow, PipelineFigures, Score, Step, View

LIVE_TIMEOUT_S = 300.0
END_TIMEOUT_S = 120.0


def make_view(*, live: bool) -> View:
    steps = [Step("the broker"), Step("Java and Spark"), Step("the pipelines")]
    view = View(
        steps=steps,
        inputs={kind.topic: Flow() for kind in events.KINDS},
        outputs={topic: Flow() for topic in events.OUTPUTS},
        pipelines={name: PipelineFigures(name) for name in registry.installed()},
        address="127.0.0.1:9092",
    )
    steps[0].end("127.0.0.1:9092")
    steps[1].begin("the JVM takes some seconds")
    for flow in (*view.inputs.values(), view.events_in):
        flow.sample(0, 0.0)
        flow.sample(2000, 1.0)
    if live:
        view.live_after_s = 12.0
        for row in view.pipelines.values():
            row.state, row.lag, row.batches, row.batch_ms = "running", 1234, 3, 2100
        view.add_alert(Alert("10:20:30", "invite fraud", "u-77", "nine invitees share one device"))
        view.alert_count = 1
        view.regions.update({"Guangdong": 30, "Beijing": 10})
        view.earnings_cents.update({"u-1": 123_456, "u-2": 5})
        view.scores = [Score("invite fraud", 9, 8)]
        view.reasons["not JSON"] = 4
    return view


def drawn(view: View, width: int, height: int) -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=width, height=height, color_system=None)
    console.print(dashboard.render(view, width, height), height=height)
    return shown.getvalue()


@pytest.mark.parametrize(("width", "height"), [(200, 60), (120, 40), (96, 24), (80, 24), (40, 12), (20, 5)])
@pytest.mark.parametrize("live", [False, True])
def test_the_dashboard_fits_every_terminal(width: int, height: int, live: bool) -> None:
    lines = drawn(make_view(live=live), width, height).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "TIDELOG" in lines[0]


def test_the_dashboard_says_what_is_waited_for_before_anything_has_come() -> None:
    text = drawn(make_view(live=False), 120, 40)
    assert "starting: Java and Spark" in text
    assert "✓ the broker" in text


def test_the_dashboard_shows_lag_alerts_regions_earners_detection_and_dead_letters() -> None:
    text = drawn(make_view(live=True), 120, 40)
    for shown in ("1,234", "nine invitees share one device", "Guangdong", "1,234.56", "8 of 9", "not JSON"):
        assert shown in text


def test_the_usual_terminal_has_room_for_alerts_regions_and_earners() -> None:
    text = drawn(make_view(live=True), 80, 24)
    for shown in ("1,234", "nine invitees share one device", "Guangdong", "1,234.56", "8 of 9"):
        assert shown in text


def test_plain_lines_tell_each_step_once() -> None:
    lines: list[str] = []
    plain = PlainLines(make_view(live=False), lines.append)
    plain.update()
    plain.update()
    assert [re.sub(r"^\d\d:\d\d  ", "", line) for line in lines] == [
        "the broker: ready after 0.0 s (127.0.0.1:9092)",
        "Java and Spark …",
    ]


@pytest.mark.parametrize("topic", events.OUTPUTS)
def test_records_of_every_output_are_taken(topic: str, tmp_path: Path) -> None:
    told = {
        events.ACCOUNT_SWITCH_ALERTS: b"",
        events.INVITE_FRAUD_ALERTS: b"",
        events.USER_REGIONS: b'{"phone_region": {"valid": true, "place": "Nanjing, Jiangsu"}}',
        events.USER_EARNINGS: b'{"total_cents": 5}',
    }
    shown = View(steps=[], inputs={}, outputs={}, pipelines={})
    record = ConsumerRecord(topic, 0, 0, 0, 0, b"k", told.get(topic, b"{}") or None, ())
    Results(shown, Truth([tmp_path / "none"])).take(record)
    assert shown.regions == (Counter({"Jiangsu": 1}) if topic == events.USER_REGIONS else Counter())
    assert shown.earnings_cents == ({"k": 5} if topic == events.USER_EARNINGS else {})
    assert shown.reasons.total() == (topic == events.DEAD_LETTERS)


def test_the_truth_is_read_in_whole_lines_as_it_grows(tmp_path: Path) -> None:
    file = tmp_path / "truth.jsonl"
    truth = Truth([file, tmp_path / "none-yet.jsonl"])
    truth.read_on()
    incident = b'{"record":"incident","pipeline":"invite-fraud","users":["a"]}\n'
    file.write_bytes(incident + b'{"record":"us')
    truth.read_on()
    assert truth.cases == [{"record": "incident", "pipeline": "invite-fraud", "users": ["a"]}]
    file.write_bytes(incident + b'{"record":"user","user_id":"a","cents":12}\n')
    truth.read_on()
    assert len(truth.cases) == 1
    assert truth.cents_by_user == {"a": 12}


def demo(directory: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tidelog", "demo", "--dir", str(directory), *arguments]


def refusal(directory: Path, *arguments: str) -> str:
    done = subprocess.run(demo(directory, *arguments), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_directory_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert "did not write: name an empty directory" in refusal(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_port_in_use_and_an_unknown_pipeline_are_refused_with_the_mend(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"--port {port} is in use" in refusal(tmp_path / "a", "--port", port)
    assert "choose from collect," in refusal(tmp_path / "b", "--pipeline", "colect")
    assert "leave --resume out" in refusal(tmp_path / "c", "--resume")


def descendants(pid: int) -> set[int]:
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            below.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in below.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], object], timeout_s: float, told: Callable[[], str]) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


@contextmanager
def running_demo(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    output = directory.with_suffix(".out")
    with output.open("wb") as file:
        process = subprocess.Popen(
            demo(directory, *arguments), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield process, output
    finally:
        # Its children see it go and end by themselves.
        if process.poll() is None:
            process.kill()
            process.wait()


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@needs_proc
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_outlives_a_run_that_is_killed_hard(tmp_path: Path) -> None:
    def jvm_runs() -> bool:
        names = [Path(f"/proc/{pid}/comm") for pid in descendants(process.pid)]
        return any(name.exists() and name.read_text().strip() == "java" for name in names)

    with running_demo(tmp_path / "demo", "--rate", "50") as (process, output):
        wait_until(lambda: "events: ready" in output.read_text(), LIVE_TIMEOUT_S, output.read_text)
        wait_until(jvm_runs, LIVE_TIMEOUT_S, output.read_text)
        started = descendants(process.pid)
        assert len(started) >= 4
        process.kill()
        process.wait()
        wait_until(
            lambda: not [pid for pid in started if is_alive(pid)],
            END_TIMEOUT_S,
            lambda: f"left over: {[pid for pid in started if is_alive(pid)]}",
        )


@needs_proc
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_shows_results_ends_cleanly_and_can_be_resumed(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    for extra in ((), ("--resume",)):
        arguments = ("--rate", "200", "--pipeline", "phone-region", *extra)
        with running_demo(directory, *arguments) as (process, output):

            def shows_results(output: Path = output, process: subprocess.Popen[bytes] = process) -> bool:
                return bool(re.search(r"out [1-9]", output.read_text())) or process.poll() is not None

            wait_until(shows_results, LIVE_TIMEOUT_S, output.read_text)
            started = descendants(process.pid)
            process.send_signal(signal.SIGTERM)
            code = process.wait(END_TIMEOUT_S)
            text = output.read_text()
            assert code == 0, text
            assert "What to try next" in text
            assert re.search(r"phone-region +[1-9]", text), text
            assert not [pid for pid in started if is_alive(pid)]
    assert (directory / "broker" / ".kafka_cleanshutdown").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
