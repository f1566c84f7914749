"""``tidelog alerts`` and ``tidelog pipeline dry-run`` against a broker, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.command_line import CommandLine
from tests.integration.pipeline_traffic import read_all, time_text

from tidelog import Producer
from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards.detection.incidents import incident_id
from tidelog_rewards.detection.verdicts import Verdict, read_verdicts, verdict_key
from tidelog_rewards.events import ALERT_VERDICTS, INCIDENTS, LOGIN
from tidelog_rewards.topics import ensure_topics

START = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
ID = incident_id("account-switch", "device", "d1")
OTHER = incident_id("account-switch", "device", "d2")


def told(name: str, device: str, state: str) -> dict[str, Any]:
    return {
        "alert_id": name,
        "pipeline": "account-switch",
        "subject_kind": "device",
        "subject": device,
        "state": state,
        "score": 65,
        "peak": 80,
        "severity": "high",
        "opened": "2026-01-05T12:00:00.000Z",
        "updated": "2026-01-05T13:00:00.000Z",
        "reasons": [{"rule": "switching", "points": 65, "count": 5, "value": "600 s"}],
        "history": [["2026-01-05T12:00:00.000Z", 80], ["2026-01-05T13:00:00.000Z", 65]],
        "accounts": ["u1", "u2", "u3"],
        "logins": [{"user_id": "u1", "event_id": "e1"}],
        "rules": {"version": "7", "digest": "abc"},
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        settings = PipelineSettings(process.bootstrap, tmp_path_factory.mktemp("pipelines"))
        ensure_topics(settings, (INCIDENTS, ALERT_VERDICTS, LOGIN.topic))
        with Producer(bootstrap_servers=process.bootstrap) as producer:
            for each in (told(ID, "d1", "open"), told(ID, "d1", "updated"), told(OTHER, "d2", "closed")):
                producer.send(INCIDENTS, json.dumps(each).encode(), key=each["alert_id"].encode())
            producer.send(INCIDENTS, json.dumps(told("gone", "d3", "open")).encode(), key=b"gone")
            producer.send(INCIDENTS, None, key=b"gone")
            producer.flush()
        yield process.bootstrap


@pytest.fixture
def tidelog(broker: str) -> CommandLine:
    return CommandLine(broker)


def states(tidelog: CommandLine) -> dict[str, str]:
    found = json.loads(tidelog("alerts", "list", "--all", "--json").stdout)
    return {each["subject"]: each["state"] for each in found}


def test_incidents_that_last_are_listed_and_shown_with_their_reasons(tidelog: CommandLine) -> None:
    lines = tidelog("alerts", "list").stdout.splitlines()
    assert [line.split("\t")[:6] for line in lines] == [[ID[:12], "updated", "65", "80", "device", "d1"]]
    assert states(tidelog) == {"d1": "updated", "d2": "closed"}
    shown = tidelog("alerts", "show", ID[:8]).stdout
    for line in ("subject\td1", "switching\t65\t5\t600 s", "2026-01-05T13:00:00.000Z\t65", "u1\te1"):
        assert line in shown.splitlines()
    missing = tidelog("alerts", "show", "nobody")
    assert missing.returncode == 1
    assert "error: there is no incident nobody: `tidelog alerts list --all` shows them" in missing.stderr


def test_verdicts_are_written_told_and_taken_back(tidelog: CommandLine, broker: str, tmp_path: Path) -> None:
    settings = PipelineSettings(broker, tmp_path)
    assert tidelog("alerts", "dismiss", ID[:8], "--note", "a test").returncode == 0
    assert states(tidelog)["d1"] == "dismissed"
    assert list(read_verdicts(settings, "account-switch").dismissed) == [ID]
    assert read_verdicts(settings, "invite-fraud").dismissed == {}
    assert tidelog("alerts", "dismiss", ID[:8], "--undo").returncode == 0
    assert states(tidelog)["d1"] == "updated"
    assert read_verdicts(settings, "account-switch").dismissed == {}
    assert tidelog("alerts", "allow", OTHER[:8]).returncode == 0
    assert read_verdicts(settings, "account-switch").allowed == {("account-switch", "device", "d2")}
    assert [record.key for record in read_all(broker, ALERT_VERDICTS)][-1].startswith(b"allow\n")


def test_a_verdict_that_is_taken_back_leaves_the_incident_as_it_was(
    tidelog: CommandLine, broker: str
) -> None:
    names = {state: incident_id("account-switch", "device", state) for state in ("closed", "open")}
    with Producer(bootstrap_servers=broker) as producer:
        for state, name in names.items():
            producer.send(INCIDENTS, json.dumps(told(name, state, state)).encode(), key=name.encode())
        producer.flush()

    def say(*words: str) -> set[str]:
        """Of both; the states that they are in, or "as they were"."""
        for name in names.values():
            assert tidelog("alerts", words[0], name, *words[1:]).returncode == 0
        now = states(tidelog)
        found = {state: now[state] for state in names}
        return {"as they were"} if all(was == now for was, now in found.items()) else set(found.values())

    assert say("dismiss", "--undo") == {"as they were"}
    for verdict in ("dismiss", "allow"):
        assert say(verdict) == {"dismissed"}
        assert say(verdict, "--note", "again") == {"dismissed"}
        assert say(verdict, "--undo") == {"as they were"}
    for one, other in (("dismiss", "allow"), ("allow", "dismiss")):
        assert [say(one), say(other)] == [{"dismissed"}] * 2
        assert say("allow", "--undo") == {"dismissed"}
        assert say("dismiss", "--undo") == {"as they were"}
    assert say("dismiss", "--until", "2026-01-05T13:00:00Z") == {"dismissed"}
    assert say("dismiss", "--until", "2026-01-05T12:59:59Z") == {"as they were"}
    assert say("dismiss", "--undo") == {"as they were"}


def test_an_undone_verdict_of_an_earlier_release_opens_the_incident(
    tidelog: CommandLine, broker: str
) -> None:
    name = incident_id("account-switch", "device", "d4")
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(INCIDENTS, json.dumps(told(name, "d4", "dismissed")).encode(), key=name.encode())
        producer.flush()
        assert tidelog("alerts", "dismiss", name, "--undo").returncode == 0
        assert states(tidelog)["d4"] == "dismissed", "no person has said so"
        verdict = Verdict("dismissed", "account-switch", "device", "d4", name)
        producer.send(ALERT_VERDICTS, msgspec.json.encode(verdict), key=verdict_key(verdict))
        producer.flush()
    done = tidelog("alerts", "dismiss", name, "--undo")
    assert "device d4 is no longer dismissed: its incident is updated" in done.stderr
    assert states(tidelog)["d4"] == "updated"


def login(device: str, user: str, moment: datetime) -> bytes:
    event = {
        "event_id": f"{device} {moment}",
        "event_time": time_text(moment),
        "user_id": user,
        "device_id": device,
        "ip": "10.0.0.1",
        "phone": "+8613800000000",
        "method": "sms",
        "success": True,
    }
    return json.dumps(event).encode()


def test_a_dry_run_of_a_day_knows_of_two_months_before_it(
    tidelog: CommandLine, broker: str, tmp_path: Path
) -> None:
    assert tidelog("configs", "alter", "--topic", LOGIN.topic, "--set", "retention.ms=-1").returncode == 0
    # A new account every half day for three weeks, then twenty by turns: at its worst it was a month ago.
    begin = START - timedelta(days=80)
    with Producer(bootstrap_servers=broker) as producer:
        for at in range(124):
            moment = begin + timedelta(hours=12 * at)
            value = login("slow", f"u{at if at < 42 else 100 + at % 20}", moment)
            producer.send(LOGIN.topic, value, timestamp_ms=round(moment.timestamp() * 1000))
        producer.flush()
    rules = tmp_path / "rules.toml"
    rules.write_text('version = "try"\n[account-switch]\nmonth_accounts = [[18, 65]]\n')
    day = [(begin + timedelta(days=at)).isoformat() for at in (61, 62)]
    asked = ("--rules", str(rules), "--from", day[0], "--to", day[1], "--json")
    (row,) = json.loads(tidelog("pipeline", "dry-run", "account-switch", *asked).stdout)
    assert [row[name] for name in ("subject", "change", "before", "after")] == ["slow", "score", 85, 65]


def test_a_dry_run_says_what_other_rules_would_have_raised(
    tidelog: CommandLine, broker: str, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('version = "try"\n[account-switch]\nburst = [[3, 65]]\n')
    with Producer(bootstrap_servers=broker) as producer:
        for device, count in (("often", 9), ("now and then", 4)):
            for at in range(count):
                producer.send(LOGIN.topic, login(device, f"u{at % 3}", START + timedelta(seconds=at * at)))
        producer.flush()
    days = (
        "--from",
        (START - timedelta(days=1)).isoformat(),
        "--to",
        (START + timedelta(days=1)).isoformat(),
    )
    done = tidelog("pipeline", "dry-run", "account-switch", "--rules", str(rules), *days, "--json")
    assert done.returncode == 0, done.stderr
    changes = {row["subject"]: row["change"] for row in json.loads(done.stdout)}
    assert changes == {"now and then": "new"}
    rules.write_text('version = "try"\n[account-switch]\nburst = [[3, 650]]\n')
    refused = tidelog("pipeline", "dry-run", "account-switch", "--rules", str(rules), *days)
    assert refused.returncode == 1
    assert "section [account-switch]: Expected `int` <= 100" in refused.stderr
