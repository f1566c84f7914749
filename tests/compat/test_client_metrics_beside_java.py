"""Our clients' figures beside those of Java's: the same names in the same groups, and the same values where
the work is the same. What Java has and we do not is on the list of what has no meaning here."""

from __future__ import annotations

import json
import subprocess
from typing import Any, NamedTuple

import pytest
from foreign import toolchain
from foreign.broker_process import BrokerProcess
from tests.compat.conftest import available

from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.client._metric_catalog import FAMILIES, WITHOUT_MEANING, is_kafkas
from tidelog.client.admin._quota_retry import ThrottlingQuotaExceededError
from tidelog.client.admin.quotas import QuotaAlteration
from tidelog.client.metrics import Figures

RECORDS = 500
VALUE = bytes(100)
PREFIXES = {"producer": "producer", "consumer": "consumer", "admin": "admin-client"}
ABSENT = {name for names, _ in WITHOUT_MEANING for name in names}
OWN = {
    (family.group, figure.name)
    for _, families in FAMILIES
    for family in families
    for figure in family.figures
    if not is_kafkas(family, figure)
}
SAME_VALUES = {
    "producer": [
        ("producer-metrics", "record-send-total", ()),
        ("producer-metrics", "record-error-total", ()),
        ("producer-metrics", "record-retry-total", ()),
        ("producer-metrics", "buffer-total-bytes", ()),
        ("producer-metrics", "buffer-available-bytes", ()),
        ("producer-metrics", "requests-in-flight", ()),
        ("producer-metrics", "produce-throttle-time-max", ()),
        ("producer-topic-metrics", "record-send-total", ("topic",)),
    ],
    "consumer": [
        ("consumer-fetch-manager-metrics", "records-consumed-total", ()),
        ("consumer-fetch-manager-metrics", "records-consumed-total", ("topic",)),
        ("consumer-fetch-manager-metrics", "records-lag", ("partition", "topic")),
        ("consumer-fetch-manager-metrics", "records-lead", ("partition", "topic")),
        ("consumer-fetch-manager-metrics", "preferred-read-replica", ("partition", "topic")),
        ("consumer-coordinator-metrics", "assigned-partitions", ()),
        ("consumer-coordinator-metrics", "commit-total", ()),
        ("consumer-coordinator-metrics", "rebalance-total", ()),
    ],
}


class Name(NamedTuple):
    group: str
    name: str
    tags: tuple[str, ...]


def figures_of_java(address: str, topic: str, protocol: Any) -> dict[str, dict[Name, str]]:
    command = toolchain.java_driver("client-4")
    command[-1] = "ClientMetrics"
    done = subprocess.run(
        [*command, address, topic, str(RECORDS), protocol],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[Name, str]] = {}
    for line in done.stdout.splitlines():
        told: dict[str, Any] = json.loads(line)
        found[told["client"]] = {
            Name(each["group"], each["name"], _tags(each["tags"])): each["value"] for each in told["metrics"]
        }
    return found


def figures_of_ours(address: str, topic: str, protocol: Any) -> dict[str, dict[Name, float]]:
    """The same work as that of foreign/drivers/java/ClientMetrics.java."""
    partition = TopicPartition(topic, 0)
    with Producer(
        bootstrap_servers=address, transactional_id="metrics-of-ours", compression_type="gzip"
    ) as producer:
        producer.init_transactions()
        with producer.transaction():
            for _ in range(RECORDS):
                producer.send(topic, VALUE, partition=0)
            producer.flush()
            producer.send_offsets_to_transaction({partition: 0}, "metrics-of-nobody")
        producer.begin_transaction()
        producer.abort_transaction()
        sent = producer.metrics()
    with Consumer(
        bootstrap_servers=address,
        group_id=f"metrics-of-ours-{protocol}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([topic])
        received = 0
        while received < RECORDS:
            received += len(consumer.poll(1.0))
        consumer.commit()
        consumer.committed([partition])
        consumer.poll(0)
        read = consumer.metrics()
    with Admin(bootstrap_servers=address) as admin:
        admin.list_topics()
        asked = admin.metrics()
    return {"producer": _named(sent), "consumer": _named(read), "admin": _named(asked)}


def _named(figures: Figures) -> dict[Name, float]:
    return {Name(name.group, name.name, _tags(name.tags)): value for name, value in figures.items()}


def _tags(tags: Any) -> tuple[str, ...]:
    assert "client-id" in tags
    return tuple(sorted(set(tags) - {"client-id"}))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_names_groups_tags_and_values_are_those_of_java(broker: BrokerProcess, protocol: Any) -> None:
    with available():
        java = figures_of_java(broker.address, f"java-metrics-{protocol}", protocol)
    ours = figures_of_ours(broker.address, f"our-metrics-{protocol}", protocol)
    for client, prefix in PREFIXES.items():
        missing = {each for each in java[client].keys() - ours[client].keys() if each.name not in ABSENT}
        assert not missing, (client, sorted(missing))
        more = {
            each
            for each in ours[client].keys() - java[client].keys()
            if not _is_own(each, prefix) and not _is_of_the_other_protocol(each, protocol)
        }
        assert not more, (client, sorted(more))
    for client, names in SAME_VALUES.items():
        for each in map(Name._make, names):
            if each in java[client]:
                assert float(java[client][each]) == ours[client][each], (client, each)
    compression = Name("producer-metrics", "compression-rate-avg", ())
    # How far it goes depends on how many records a batch has found by the time that it leaves.
    for figures in (ours, java):
        assert 0 < float(figures["producer"][compression]) < 0.5


def test_changes_that_a_quota_puts_off_are_made_in_the_end(broker: BrokerProcess, topic: str) -> None:
    client_id = f"{topic}-client"
    quota = {"controller_mutation_rate": 4.0}
    with Admin(bootstrap_servers=broker.address) as admin:
        for done in admin.alter_client_quotas([QuotaAlteration({"client-id": client_id}, quota)]):
            done.raise_for_error()
    with Admin(bootstrap_servers=broker.address, client_id=client_id) as admin:
        names = [f"{topic}-1", f"{topic}-2"]
        # The first one takes more than has been saved up, and something is left for it: it is admitted.
        wanted = [NewTopic(f"{topic}-large", 48), *(NewTopic(name, 1) for name in names)]
        results = {
            each.name: each.error for each in admin.create_topics(wanted, retry_on_quota_violation=False)
        }
        assert results[f"{topic}-large"] is None
        for name in names:
            error = results[name]
            assert isinstance(error, ThrottlingQuotaExceededError)
            assert error.throttle_time_ms > 0
        assert [each.error for each in admin.create_topics([NewTopic(name, 1) for name in names])] == [
            None
        ] * 2
        assert [each.error for each in admin.create_partitions(dict.fromkeys(names, 3))] == [None] * 2
        assert [each.error for each in admin.delete_topics(names)] == [None] * 2
        assert admin.metrics()["throttle-total"] >= 1


def _is_own(name: Name, prefix: str) -> bool:
    groups = (name.group, name.group.replace(f"{prefix}-", "{client}-", 1))
    is_p99 = name.name.endswith("-p99")
    # Metadata's age is told by Java's producers alone.
    return is_p99 or name.name == "metadata-age" or any((group, name.name) in OWN for group in groups)


def _is_of_the_other_protocol(name: Name, protocol: Any) -> bool:
    """Java's newer consumer has no figures of joining; per topic it has those of answers that are drained."""
    return protocol == "consumer" and (
        name.name.startswith(("join-", "sync-"))
        or (name.group == "consumer-fetch-manager-metrics" and name.tags == ("topic",))
    )
