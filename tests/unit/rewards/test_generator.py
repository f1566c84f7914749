"""The generator's promises: same seed same bytes, valid events, consistent money, a truth that is true."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import phonenumbers
import pytest

from tidelog_rewards import events
from tidelog_rewards.generator import Event, Traffic, TrafficSettings
from tidelog_rewards.generator.damage import FAULTS, damaged
from tidelog_rewards.generator.delivery import deliver, to_directory
from tidelog_rewards.generator.planted import HONEST_CASES, RINGS
from tidelog_rewards.generator.regions import CHINA, REGIONS, activity
from tidelog_rewards.generator.truth import Truth

START = datetime(2026, 1, 5, tzinfo=UTC)


class Run:
    """A run, all its events and its truth."""

    def __init__(self, hours: float = 3.0, **settings: Any) -> None:
        file = io.BytesIO()
        truth = Truth(file)
        self.traffic = Traffic(TrafficSettings(START, **{"rate": 5.0, "fraud": 2.0, **settings}), truth)
        self.events = self.traffic.until(self.traffic.begin_ms + round(hours * 3_600_000))
        truth.finish()
        self.truth = [json.loads(line) for line in file.getvalue().splitlines()]

    def told(self, record: str) -> list[dict[str, Any]]:
        return [each for each in self.truth if each["record"] == record]

    @property
    def totals(self) -> dict[str, Any]:
        return self.told("totals")[0]

    def valid(self) -> Iterator[tuple[Event, dict[str, Any]]]:
        """The events that are not damaged, redeliveries included."""
        damaged = Counter(each["sha256"] for each in self.told("malformed"))
        for event in self.events:
            digest = hashlib.sha256(event.value).hexdigest()
            if damaged[digest]:
                damaged[digest] -= 1
                continue
            yield event, json.loads(event.value)


@pytest.fixture(scope="module")
def run() -> Run:
    return Run()


def test_the_same_settings_give_the_same_bytes_and_another_seed_gives_others() -> None:
    first, again, other = (Run(0.2, seed=seed) for seed in (1, 1, 2))
    assert first.events == again.events
    assert first.truth == again.truth
    ids, other_ids = ({fields["event_id"] for _, fields in run.valid()} for run in (first, other))
    assert ids.isdisjoint(other_ids)


def test_events_are_the_same_whatever_slices_they_are_asked_for_in(run: Run) -> None:
    traffic = Traffic(TrafficSettings(START, rate=5.0, fraud=2.0))
    sliced: list[Event] = []
    while len(sliced) < 3_000:
        sliced += traffic.until(traffic.time_ms + 7_001, 500)
    assert sliced == run.events[: len(sliced)]


def test_every_topic_has_events_and_they_arrive_in_order(run: Run) -> None:
    assert {event.topic for event in run.events} == {kind.topic for kind in events.KINDS}
    times = [event.timestamp_ms for event in run.events]
    assert times == sorted(times)


def test_every_event_that_is_not_damaged_has_the_fields_of_its_kind(run: Run) -> None:
    for event, fields in run.valid():
        kind = events.BY_TOPIC[event.topic]
        assert set(fields) <= {field.name for field in kind.fields}
        assert event.key.decode() == fields["user_id"]
        for field in kind.fields:
            if field.name not in fields:
                assert not field.required, (field, fields)
                continue
            value = fields[field.name]
            types: dict[str, type[Any]] = {"string": str, "time": str, "long": int, "boolean": bool}
            assert type(value) is types[field.type], (field, value)
            assert not field.choices or value in field.choices
            assert field.minimum is None or value >= field.minimum
        happened_ms = datetime.fromisoformat(fields["event_time"]).timestamp() * 1000
        assert START.timestamp() * 1000 <= happened_ms <= event.timestamp_ms


def test_totals_are_those_of_what_was_sent(run: Run) -> None:
    totals = run.totals
    assert totals["records"] == dict(Counter(event.topic for event in run.events))
    distinct = {fields["event_id"]: (event, fields) for event, fields in run.valid()}
    assert totals["events"] == dict(Counter(event.topic for event, _ in distinct.values()))
    cents: Counter[str] = Counter()
    by_user: Counter[str] = Counter()
    for event, fields in distinct.values():
        if event.topic == events.CREDIT.topic:
            cents[fields["source"]] += fields["amount_cents"]
            by_user[fields["user_id"]] += fields["amount_cents"]
    assert totals["cents_by_source"] == dict(cents)
    assert {each["user_id"]: each["cents"] for each in run.told("user")} == dict(by_user)


def test_redelivered_events_are_the_same_bytes_again(run: Run) -> None:
    deliveries = defaultdict(list)
    for event, fields in run.valid():
        deliveries[fields["event_id"]].append(event)
    twice = {event_id: each for event_id, each in deliveries.items() if len(each) > 1}
    assert sorted(twice) == sorted(each["event_id"] for each in run.told("redelivered"))
    assert twice
    for first, again in twice.values():
        assert (first.topic, first.key, first.value) == (again.topic, again.key, again.value)


def test_damaged_events_break_a_rule_of_their_kind_and_every_fault_occurs(run: Run) -> None:
    assert run.told("malformed")
    random = Random(1)
    faults: Counter[str] = Counter()
    for event, fields in itertools.islice(run.valid(), 2_000):
        value, fault, field = damaged(random, event.topic, event.value)
        faults[fault] += 1
        try:
            broken = json.loads(value)
        except ValueError:
            assert (fault in ("truncated", "not json", "empty"), field) == (True, None)
            continue
        assert broken["event_id"] != fields["event_id"] if "event_id" in broken else field == "event_id"
        assert field is not None
        assert broken.get(field) != fields[field]
    assert set(faults) == set(FAULTS)


def test_late_events_are_those_that_the_truth_names(run: Run) -> None:
    late = {each["event_id"] for each in run.told("late")}
    seen = set()
    for event, fields in run.valid():
        happened_ms = datetime.fromisoformat(fields["event_time"]).timestamp() * 1000
        if event.timestamp_ms - happened_ms > 25_000:
            seen.add(fields["event_id"])
    assert seen == late
    assert late


def test_an_ad_pays_what_its_slide_says_once(run: Run) -> None:
    slides, credits = Counter[str](), Counter[str]()
    warm = START + timedelta(minutes=5)
    for event, fields in run.valid():
        if datetime.fromisoformat(fields["event_time"]) < warm:
            continue
        if event.topic == events.RIGHT_SLIDE.topic:
            slides[fields["user_id"]] += 1
        elif event.topic == events.CREDIT.topic and fields["source"] == "right_slide":
            credits[fields["user_id"]] += 1
    assert sum(slides.values()) > 5_000
    off = sum(abs(slides[user] - credits[user]) for user in slides)
    # At the two ends of the run, and for what is late or comes twice, one of the pair may be missing.
    assert off < 0.02 * sum(slides.values())


def test_tasks_go_step_by_step_and_pay_at_the_last(run: Run) -> None:
    steps: dict[tuple[str, str], set[int]] = defaultdict(set)
    sizes: dict[tuple[str, str], int] = {}
    paid: Counter[tuple[str, str]] = Counter()
    known = set()
    for event, fields in run.valid():
        if fields["event_id"] in known:
            continue
        known.add(fields["event_id"])
        if event.topic == events.TASK.topic:
            task = (fields["user_id"], fields["task_id"])
            steps[task].add(fields["step"])
            sizes[task] = fields["steps"]
        elif event.topic == events.CREDIT.topic and fields["source"] == "task":
            paid[fields["user_id"], fields["task_id"]] += 1
    assert paid
    assert max(paid.values()) == 1
    done = [task for task in sizes if len(steps[task]) == sizes[task]]
    assert len(set(paid) - set(done)) <= 2, "only a late step may be missing"


def test_numbers_are_valid_but_for_those_that_the_truth_explains(run: Run) -> None:
    invalid = {each["phone"]: each["reason"] for each in run.told("invalid_phone")}
    assert invalid
    assert all(invalid.values())
    seen: set[str] = set()
    for event, fields in run.valid():
        if event.topic in (events.LOGIN.topic, events.MESSAGE_VERIFICATION.topic):
            seen.add(fields["phone"])
        elif event.topic == events.INVITE.topic:
            seen.add(fields["invitee_phone"])
    assert len(seen) > 1_000
    assert sum(phone.startswith("+86") or len(phone) == 11 for phone in seen) > 0.8 * len(seen)
    for phone in seen:
        assert _is_valid(phone) != (phone in invalid), phone


def test_every_region_has_valid_mobile_numbers() -> None:
    random = Random(1)
    for region in REGIONS:
        for _ in range(200):
            assert _is_valid(region.phone(random)), region.code


def _is_valid(phone: str) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(phone, "CN"))
    except phonenumbers.NumberParseException:
        return False


def test_all_kinds_of_fraud_and_of_honest_lookalikes_are_planted() -> None:
    run = Run(1.5, fraud=4.0)
    rules = {each["rule"] for each in run.told("incident") if each["complete"]}
    assert rules == {
        "account-switch",
        "device",
        "address",
        "number-block",
        "burst",
        "cycle",
        "mutual",
        "chain",
    }
    assert len(RINGS) == 8
    assert {each["case"] for each in run.told("honest")} == set(HONEST_CASES)


def test_incidents_name_events_that_were_sent(run: Run) -> None:
    sent = {fields["event_id"]: (event, fields) for event, fields in run.valid()}
    incidents = run.told("incident")
    assert len([each for each in incidents if each["complete"]]) >= 20
    for incident in incidents:
        there = [each for each in incident["events"] if each in sent]
        assert len(there) == incident["sent"]
        assert incident["complete"] == (len(there) == len(incident["events"]))
        topic = events.LOGIN.topic if incident["pipeline"] == "account-switch" else events.INVITE.topic
        assert {sent[each][0].topic for each in there} == {topic}
        assert {sent[each][1]["user_id"] for each in there} <= set(incident["users"])


def test_no_fraud_is_planted_where_none_is_wanted() -> None:
    run = Run(0.5, fraud=0.0)
    assert run.told("incident") == []
    assert run.told("honest")


def test_families_share_devices_and_offices_share_addresses(run: Run) -> None:
    planted = {name for each in run.truth if "devices" in each for name in each["devices"]}
    users_of_device, users_of_address = defaultdict(set), defaultdict(set)
    for _, fields in run.valid():
        if fields["device_id"] not in planted:
            users_of_device[fields["device_id"]].add(fields["user_id"])
            users_of_address[fields["ip"]].add(fields["user_id"])
    assert sum(len(users) > 1 for users in users_of_device.values()) > 10
    assert max(map(len, users_of_address.values())) > 30


def test_the_rate_is_held_and_the_daily_curve_moves_it() -> None:
    steady = Traffic(TrafficSettings(START, rate=100.0))
    begin_ms = steady.begin_ms
    per_minute = [len(steady.until(begin_ms + minute * 60_000)) for minute in range(1, 6)]
    assert all(0.8 * 6_000 < number < 1.2 * 6_000 for number in per_minute), per_minute
    curved = Traffic(TrafficSettings(START, rate=1.0, daily_curve=True))
    per_hour = [len(curved.until(begin_ms + hour * 3_600_000)) for hour in range(1, 25)]
    night, evening = per_hour[19], per_hour[12]
    assert evening > 5 * night, per_hour
    assert abs(sum(per_hour) / 86_400 - 1) < 0.1


def test_people_are_awake_by_their_own_clock() -> None:
    evening_in_china_ms = round((START + timedelta(hours=12)).timestamp() * 1000)
    britain = next(region for region in REGIONS if region.code == "GB")
    assert activity(CHINA, evening_in_china_ms) > 1.5
    assert activity(CHINA, evening_in_china_ms + 8 * 3_600_000) < 0.3
    assert activity(britain, evening_in_china_ms + 8 * 3_600_000) > 1.5


def test_files_hold_what_was_made_and_the_count_is_exact(tmp_path: Path) -> None:
    settings = TrafficSettings(START, rate=50.0)
    with to_directory(tmp_path / "events") as destination:
        assert deliver(Traffic(settings), destination, paced=False, count=2_345) == 2_345
    traffic = Traffic(settings)
    expected = Counter(event.topic for event in traffic.until(traffic.begin_ms + 600_000, 2_345))
    lines = {path.stem: path.read_bytes().splitlines() for path in (tmp_path / "events").iterdir()}
    assert {topic: len(each) for topic, each in lines.items() if each} == dict(expected)
    first = json.loads(lines[events.EXPOSURE.topic][0])
    assert set(first) == {"key", "timestamp", "value"}


def test_a_stop_ends_a_run_with_what_was_sent(tmp_path: Path) -> None:
    sent: list[int] = []
    with to_directory(tmp_path) as destination:
        total = deliver(
            Traffic(TrafficSettings(START, rate=50.0)),
            destination,
            paced=False,
            stopped=lambda: len(sent) == 2,
            on_batch=lambda batch: sent.append(len(batch)),
        )
    assert total == sum(sent) > 0
