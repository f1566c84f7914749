"""Alerts of a micro-batch are written once; other alerts under the number of a batch are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.integration.pipeline_traffic import read_all

from tidelog import Producer
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.record_sink import RECORD_SCHEMA
from tidelog.spark.write.epoch_task import ReplayRefusedError
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards.detection.alert_job import KeyedBatches
from tidelog_rewards.detection.alert_state import StateError
from tidelog_rewards.detection.batch_terms import BatchTerms
from tidelog_rewards.detection.verdicts import NEVER_US, Verdict, verdict_key
from tidelog_rewards.events import ACCOUNT_SWITCH_ALERTS, ALERT_VERDICTS, DEAD_LETTERS
from tidelog_rewards.jobs.account_switch.detector import SwitchDetector
from tidelog_rewards.jobs.account_switch.schema import Rules
from tidelog_rewards.settings import RewardsSettings
from tidelog_rewards.topics import ensure_topics

NAME = "account-switch"
TOPICS = (ACCOUNT_SWITCH_ALERTS, DEAD_LETTERS)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.bootstrap


@pytest.fixture
def settings(bootstrap: str, tmp_path: Path) -> PipelineSettings:
    """With a checkpoint of its own, as a streaming query has made it by its first batch."""
    settings = PipelineSettings(bootstrap, tmp_path)
    ensure_topics(settings, TOPICS)
    settings.checkpoint(NAME).mkdir(parents=True)
    (settings.checkpoint(NAME) / "metadata").write_text(f'{{"id":"{tmp_path.name}"}}')
    return settings


def batch(*values: bytes) -> pa.Table:
    alerts = [{"topic": ACCOUNT_SWITCH_ALERTS, "key": value[:1], "value": value} for value in values]
    letter = {"topic": DEAD_LETTERS, "value": values[0], "headers": [{"key": "reason", "value": b"no"}]}
    return pa.Table.from_pylist([*alerts, letter], schema=RECORD_SCHEMA)


def written(bootstrap: str, topic: str, values: tuple[bytes, ...]) -> list[bytes | None]:
    """What committed records of a topic hold, of these values."""
    return sorted(record.value for record in read_all(bootstrap, topic) if record.value in values)


def write(batches: KeyedBatches[Rules], records: pa.Table, batch_id: int) -> None:
    """As the task of bucket 3 writes."""
    sink = batches.sink(batch_id)
    assert sink is not None
    sink.write(records.to_batches(), 3, batch_id)


def test_a_replayed_batch_adds_nothing_in_the_same_run_or_in_another(settings: PipelineSettings) -> None:
    values = (b"a1", b"a2", b"a3")
    first = KeyedBatches(settings, SwitchDetector())
    write(first, batch(*values[:2]), 4)
    write(first, batch(*values[:2]), 4)
    restarted = KeyedBatches(settings, SwitchDetector())
    write(restarted, batch(*values[:2]), 4)
    write(restarted, batch(values[2]), 7)
    write(restarted, batch(values[2]), 7)
    assert written(settings.bootstrap_servers, ACCOUNT_SWITCH_ALERTS, values) == [b"a1", b"a2", b"a3"]
    assert written(settings.bootstrap_servers, DEAD_LETTERS, values) == [b"a1", b"a3"]


def test_other_alerts_under_a_number_that_was_written_are_refused(settings: PipelineSettings) -> None:
    write(KeyedBatches(settings, SwitchDetector()), batch(b"b1"), 0)
    with pytest.raises(ReplayRefusedError, match="txnVersion=0 of txnAppId=account-switch-"):
        write(KeyedBatches(settings, SwitchDetector()), batch(b"b2"), 0)
    assert written(settings.bootstrap_servers, ACCOUNT_SWITCH_ALERTS, (b"b1", b"b2")) == [b"b1"]


def test_a_batch_without_records_writes_nothing(settings: PipelineSettings) -> None:
    batches = KeyedBatches(settings, SwitchDetector())
    write(batches, RECORD_SCHEMA.empty_table(), 0)
    write(batches, batch(b"c1"), 0)
    assert written(settings.bootstrap_servers, ACCOUNT_SWITCH_ALERTS, (b"c1",)) == [b"c1"]


def test_a_batch_that_comes_again_is_judged_by_the_rules_and_verdicts_of_its_first_attempt(
    settings: PipelineSettings, tmp_path: Path
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('version = "1"\n')
    watched = replace(settings, extensions=(RewardsSettings(rules=path),))
    state = tmp_path / "state"
    ensure_topics(settings, (ALERT_VERDICTS,))
    first = BatchTerms(watched, SwitchDetector(), state)
    assert first.of(3).rules.alert_score == 60
    path.write_text('version = "2"\n[account-switch]\nalert_score = 77\n')
    verdict = Verdict("dismissed", NAME, "device", "d", "id of it")
    with Producer(bootstrap_servers=settings.bootstrap_servers) as producer:
        producer.send(ALERT_VERDICTS, msgspec.json.encode(verdict), key=verdict_key(verdict))
        producer.send(ALERT_VERDICTS, b"no verdict", key=b"x")
        producer.flush()
    for terms in (first, BatchTerms(watched, SwitchDetector(), state)):
        assert terms.of(3).rules.alert_score == 60
        told = terms.of(3).told(SwitchDetector(), 0)
        assert (told.rules.version, told.verdicts.dismissed) == ("1", {})
    taken = first.of(4)
    told = taken.told(SwitchDetector(), 0)
    assert (taken.rules.alert_score, told.rules.version) == (77, "2")
    assert told.verdicts.dismissed == {"id of it": NEVER_US}


def test_the_watermark_of_a_checkpoint_does_not_go_back_when_rules_allow_more_lateness(
    settings: PipelineSettings, tmp_path: Path
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('version = "1"\n')
    ensure_topics(settings, (ALERT_VERDICTS,))

    def terms() -> BatchTerms[Rules]:
        return BatchTerms(
            replace(settings, extensions=(RewardsSettings(rules=path),)), SwitchDetector(), tmp_path / "state"
        )

    newest_us, hour_us, day_us = 10**15, 3600 * 10**6, 86_400 * 10**6
    assert terms().of(3, newest_us).watermark_us == newest_us - hour_us
    path.write_text('version = "2"\n[account-switch]\nlateness_s = 86400\n')
    restarted = terms()
    for batch_id in (4, 4, 5):
        found = restarted.of(batch_id, newest_us + 1)
        assert (found.rules.lateness_s, found.watermark_us) == (86_400, newest_us - hour_us)
    assert restarted.of(6, newest_us + 2 * day_us).watermark_us == newest_us + day_us


@pytest.mark.parametrize(
    ("known", "other"),
    [
        ('"quiet_s":86400', '"quiet_s":10000000000000'),
        ('"watermark_us"', '"event_time_us"'),
        ('"allow":{', '"allow":{"device":7,'),
        ("{", "["),
    ],
)
def test_terms_of_another_version_are_refused_and_stay_as_they_are(
    settings: PipelineSettings, tmp_path: Path, known: str, other: str
) -> None:
    ensure_topics(settings, (ALERT_VERDICTS,))
    terms = BatchTerms(settings, SwitchDetector(), tmp_path)
    terms.of(3)
    (path,) = (tmp_path / "terms").iterdir()
    text = path.read_text().replace(known, other, 1)
    assert text != path.read_text()
    path.write_text(text)
    sentence = r"terms/000000000003.json cannot be read .*: move its checkpoint directory away"
    with pytest.raises(StateError, match=sentence):
        terms.of(3)
    assert path.read_text() == text


def test_a_batch_that_comes_again_tells_of_the_same_verdicts(
    settings: PipelineSettings, tmp_path: Path
) -> None:
    ensure_topics(settings, (ALERT_VERDICTS,))

    def changed(batch_id: int) -> frozenset[str]:
        terms = BatchTerms(settings, SwitchDetector(), tmp_path / "state").of(batch_id)
        return terms.told(SwitchDetector(), 0).changed

    def say(name: str, value: bytes | None) -> None:
        with Producer(bootstrap_servers=settings.bootstrap_servers) as producer:
            producer.send(ALERT_VERDICTS, value, key=name.encode())
            producer.flush()

    changed(0)
    say("one", msgspec.json.encode(Verdict("dismissed", NAME, "device", "d1", "one")))
    assert changed(1) == {"one"}
    say("one", None)
    say("two", msgspec.json.encode(Verdict("dismissed", NAME, "device", "d2", "two")))
    assert [changed(batch_id) for batch_id in (1, 2, 3)] == [{"one"}, {"one", "two"}, frozenset()]
