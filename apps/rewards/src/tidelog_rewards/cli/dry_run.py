"""``tidelog pipeline dry-run``: what other rules would have raised over a past range; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidelog.cli.failure import WrongUsage
from tidelog.cli.output import counted, print_json, print_table, remark
from tidelog.client import Consumer, TopicPartition
from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog_rewards.detection.alert_evidence import Window
from tidelog_rewards.detection.alert_tasks import Detector
from tidelog_rewards.detection.detection_rules import RulesName, load_rules
from tidelog_rewards.detection.log_reach import is_cut, needed_us
from tidelog_rewards.detection.offline import LogRecord, detect_offline
from tidelog_rewards.jobs.account_switch import schema as switch_schema
from tidelog_rewards.jobs.account_switch.detector import SwitchDetector
from tidelog_rewards.jobs.invite_fraud import schema as invite_schema
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector
from tidelog_rewards.phones.phone_keys import FILE_NAME, random_keys, read_keys
from tidelog_rewards.phones.phone_tokens import CLEAR, PhonesWritten, PhoneTokens
from tidelog_rewards.settings import PhoneSettings

_POLL_S = 30.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read."""

    time_range: TimeRange
    client: dict[str, Any]
    """Options of the client that reads."""
    allow_cut_log: bool
    """Though retention has deleted some of what the range is judged by."""


def show(
    names: Sequence[str],
    rules: Path,
    against: Path | None,
    reading: Reading,
    phones: PhonesWritten,
    *,
    json: bool,
) -> None:
    """Print which incidents of a range only one of two sets of rules raises, and whose score differs."""
    rows = []
    for name in names:
        before, after = (_raised(name, path, reading, phones) for path in (against, rules))
        for key in sorted({*before, *after}):
            old, new = before.get(key), after.get(key)
            if old is None or new is None or old["peak"] != new["peak"]:
                rows.append(
                    {
                        "pipeline": name,
                        "change": "gone" if new is None else "new" if old is None else "score",
                        "kind": key[0],
                        "subject": key[1],
                        "before": old and old["peak"],
                        "after": new and new["peak"],
                        "reasons": [reason["rule"] for reason in (new or old or {})["reasons"]],
                    }
                )
        remark(f"{name}: {counted(len(before), 'incident')} before, {len(after)} with {rules}")
    if json:
        print_json(rows)
        return
    columns = ("pipeline", "change", "kind", "subject", "before", "after", "reasons")
    print_table(columns, [tuple(row.values()) for row in rows], right=("before", "after"))


def phones_of(directory: Path, *, clear: bool) -> PhonesWritten:
    """What stands for blocks of numbers: as in the incidents of a directory, if it has keys."""
    if clear:
        return CLEAR
    path = directory / FILE_NAME
    return PhoneTokens(read_keys(path) if path.exists() else random_keys(), PhoneSettings().country)


def _raised(
    name: str, path: Path | None, reading: Reading, phones: PhonesWritten
) -> dict[tuple[str, str], dict[str, Any]]:
    detector, rules = _detector(name, path)
    time_range, topic = reading.time_range, detector.kind.topic
    start, end = (round(moment.timestamp() * 1_000_000) for moment in (time_range.start, time_range.end))
    within = Window(start, end)
    is_cut(reading.client, [topic], within, detector.memory_us, allowed=reading.allow_cut_log)
    records = _records(reading.client, topic, max(0, needed_us(within, detector.memory_us) // 1000))
    found = detect_offline(detector, rules, records, within, phones)
    return {(told["subject_kind"], told["subject"]): told for told in found}


def _detector(name: str, path: Path | None) -> tuple[Detector, RulesName]:
    if name == switch_schema.NAME:
        switch = load_rules(name, switch_schema.Rules, path)
        return SwitchDetector(switch.rules), RulesName(switch.version, switch.digest)
    if name == invite_schema.NAME:
        invite = load_rules(name, invite_schema.Rules, path)
        return InviteDetector(invite.rules), RulesName(invite.version, invite.digest)
    raise WrongUsage(f"{name} has no rules: name {switch_schema.NAME} or {invite_schema.NAME}")


def _records(options: dict[str, Any], topic: str, since_ms: int) -> Iterator[LogRecord]:
    """The records of a topic from a moment on, to where it ends now."""
    reading = {"isolation.level": "read_committed", "enable.auto.commit": False}
    with Consumer({**options, **reading}) as consumer:
        partitions = [TopicPartition(topic, each.partition) for each in consumer.list_topics().get(topic, ())]
        if not partitions:
            return
        ends = consumer.end_offsets(partitions)
        begins = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        consumer.assign(partitions)
        for partition in partitions:
            found = begins.get(partition)
            consumer.seek(partition, ends[partition] if found is None else found.offset)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for record in consumer.poll(_POLL_S):
                moment = datetime.fromtimestamp(record.timestamp / 1000, UTC)
                yield LogRecord(topic, record.partition, record.offset, moment, record.key, record.value)
