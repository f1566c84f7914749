"""Quotas with clients that keep to them: ours, librdkafka's, and the command line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition
from tests.integration.command_line import CommandLine

import tidelog.client as ours
from tidelog.client.admin._quota_retry import ThrottlingQuotaExceededError
from tidelog.client.admin.quotas import ANY_NAME, ClientQuotas, QuotaAlteration
from tidelog.client.admin.scram_users import ScramDeletion, ScramUpsertion
from tidelog.errors import ErrorCode
from tidelog.testing.broker_process import BrokerProcess

Names = Callable[[], str]
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that forgets in two seconds what was used, where others remember eleven."""
    foreign = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
    if foreign:
        yield foreign
        return
    data_dir = tmp_path_factory.mktemp("quotas") / "data"
    options = {"quota.window.num": "2", "controller.quota.window.num": "2"}
    with BrokerProcess(data_dir, options=options) as broker:
        yield broker.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[ours.Admin]:
    with ours.Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture
def limited(admin: ours.Admin, topic_name: Names) -> Iterator[Callable[..., str]]:
    """A client id of its own with quotas, which end with the test."""
    names: list[str] = []

    def set_(**quotas: float) -> str:
        names.append(topic_name())
        for result in admin.alter_client_quotas([QuotaAlteration({"client-id": names[-1]}, quotas)]):
            result.raise_for_error()
        return names[-1]

    yield set_
    for name in names:
        (found,) = admin.describe_client_quotas({"client-id": name}) or [ClientQuotas({}, {})]
        admin.alter_client_quotas([QuotaAlteration({"client-id": name}, dict.fromkeys(found.quotas))])


def test_quotas_are_set_listed_and_removed(admin: ours.Admin, topic_name: Names) -> None:
    user, client = f"{topic_name()} *%/ü", topic_name()
    both = {"user": user, "client-id": client}
    everybody = {"user": None, "client-id": client}
    results = admin.alter_client_quotas(
        [
            QuotaAlteration(both, {"producer_byte_rate": 1e6, "request_percentage": 12.5}),
            QuotaAlteration(everybody, {"consumer_byte_rate": 2e6}),
            QuotaAlteration({"client-id": client}, {"producer_byte_rate": -1.0}),
        ]
    )
    assert [each.error and each.error.code for each in results] == [None, None, ErrorCode.INVALID_REQUEST]
    assert admin.describe_client_quotas({"user": user}) == [
        ClientQuotas(both, {"producer_byte_rate": 1e6, "request_percentage": 12.5})
    ]
    assert {"consumer_byte_rate": 2e6} in [
        each.quotas for each in admin.describe_client_quotas({"user": None, "client-id": client})
    ]
    assert len(admin.describe_client_quotas({"user": ANY_NAME, "client-id": client})) == 2
    assert admin.describe_client_quotas({"user": user}, strict=True) == []
    gone: list[QuotaAlteration] = [
        QuotaAlteration(both, {"producer_byte_rate": None, "request_percentage": None}),
        QuotaAlteration(everybody, {"consumer_byte_rate": None}),
    ]
    for result in admin.alter_client_quotas(gone):
        result.raise_for_error()
    assert admin.describe_client_quotas({"client-id": client}) == []


def test_quotas_and_credentials_of_a_user_are_apart(admin: ours.Admin, topic_name: Names) -> None:
    user = topic_name()
    (made,) = admin.alter_user_scram_credentials([ScramUpsertion(user, password="a password")])
    made.raise_for_error()
    before = admin.describe_user_scram_credentials([user])
    assert admin.describe_client_quotas({"user": user}) == []

    change = {"SCRAM-SHA-256": None, "SCRAM-SHA-512": None, "producer_byte_rate": 1e6}
    (changed,) = admin.alter_client_quotas([QuotaAlteration({"user": user}, change)])
    changed.raise_for_error()
    assert admin.describe_user_scram_credentials([user]) == before
    quotas = [ClientQuotas({"user": user}, {"producer_byte_rate": 1e6})]
    assert admin.describe_client_quotas({"user": user}) == quotas

    (removed,) = admin.alter_user_scram_credentials([ScramDeletion(user, before[0].credentials[0].mechanism)])
    removed.raise_for_error()
    assert admin.describe_client_quotas({"user": user}) == quotas
    admin.alter_client_quotas([QuotaAlteration({"user": user}, {"producer_byte_rate": None})])


def test_our_clients_pause_as_they_are_told_and_report_it(
    bootstrap: str, limited: Callable[..., str], topic_name: Names
) -> None:
    topic = topic_name()
    client_id = limited(producer_byte_rate=150_000, consumer_byte_rate=150_000)
    value = bytes(21_000)
    with ours.Producer(bootstrap_servers=bootstrap, client_id=client_id, batch_size=16_384) as producer:
        sent = [producer.send(topic, value) for _ in range(10)]
        producer.flush()
        assert [each.result().offset for each in sent] == list(range(10))
        figures = producer.metrics()
        assert figures["throttle-total"] >= 1
        assert 0 < figures["throttle-time-avg"] <= figures["throttle-time-max"]
    with ours.Consumer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        auto_offset_reset="earliest",
        fetch_max_bytes=50_000,
    ) as consumer:
        consumer.assign([ours.TopicPartition(topic, 0)])
        read = 0
        deadline = time.monotonic() + DEADLINE_S
        while read < 10:
            assert time.monotonic() < deadline
            read += len(consumer.poll(0.5))
        assert consumer.metrics()["throttle-total"] >= 1


def test_our_admin_client_waits_until_a_quota_admits_its_changes(
    bootstrap: str, limited: Callable[..., str], topic_name: Names
) -> None:
    large, small = topic_name(), topic_name()
    client_id = limited(controller_mutation_rate=5)
    with ours.Admin(bootstrap_servers=bootstrap, client_id=client_id) as changing:
        # The first takes more than has been saved up, but not all that is left before it.
        wanted = [ours.NewTopic(large, 14), ours.NewTopic(small, 1)]
        admitted, refused = changing.create_topics(wanted, retry_on_quota_violation=False)
        assert (admitted.name, admitted.error) == (large, None)
        assert isinstance(refused.error, ThrottlingQuotaExceededError)
        assert 0 < refused.error.throttle_time_ms < 10_000
        (created,) = changing.create_topics([ours.NewTopic(small, 1)])
        assert created.error is None
        assert changing.metrics()["throttle-total"] >= 1
        for result in changing.delete_topics([large, small]):
            result.raise_for_error()


def test_librdkafka_is_told_to_pause(bootstrap: str, limited: Callable[..., str], topic_name: Names) -> None:
    topic = topic_name()
    client_id = limited(producer_byte_rate=150_000, consumer_byte_rate=150_000)
    pauses: list[float] = []
    options = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "throttle_cb": lambda event: pauses.append(event.throttle_time),
    }
    producer = ConfluentProducer({**options, "batch.size": 16_384})
    for _ in range(10):
        producer.produce(topic, bytes(21_000))
    assert producer.flush(DEADLINE_S) == 0
    producer.poll(0.1)
    assert pauses
    pauses.clear()
    consumer = ConfluentConsumer(
        {
            **options,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 100_000,
            "message.max.bytes": 100_000,
            "max.partition.fetch.bytes": 50_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    deadline = time.monotonic() + DEADLINE_S
    while read < 10:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        read += message is not None and message.error() is None
    consumer.close()
    assert pauses


def test_the_command_line_sets_lists_and_removes(bootstrap: str, topic_name: Names) -> None:
    cli = CommandLine(bootstrap)
    name = topic_name()
    rates = ("--produce", "1.5MB", "--consume", "1MiB", "--requests", "25%")
    assert cli("quotas", "set", "--user", name, *rates).returncode == 0
    table = cli.ok("quotas", "list", "--user", name)
    assert "1.5 MB/s" in table
    assert "25 %" in table
    assert cli("quotas", "remove", "--user", name, "--requests").returncode == 0
    shown = cli.json("quotas", "list", "--user", name)
    assert shown == [
        {"entity": {"user": name}, "quotas": {"consumer_byte_rate": 2**20, "producer_byte_rate": 1_500_000}}
    ]
    assert cli("quotas", "remove", "--user", name).returncode == 0
    assert cli.json("quotas", "list", "--user", name) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("set", "--user", "u", "--produce", "-5"), "bytes per second"),
        (("set", "--user", "u", "--produce", "0"), "1 or more"),
        (("set", "--user", "u", "--produce", "1.5"), "whole number of bytes"),
        (("set", "--user", "u", "--requests", "nan"), "above 0"),
        (("set", "--user", "u", "--changes", "inf"), "above 0"),
        (("set", "--user", "u"), "no quota specified"),
        (("set", "--produce", "5"), "specify --user"),
        (("set", "--ip", "192.0.2.1", "--produce", "5"), "an IP address has only one quota"),
        (("set", "--user", "u", "--connections", "5"), "pass --ip or --default-ip"),
        (("set", "--user", "u", "--default-user", "--produce", "5"), "are mutually exclusive"),
        (("set", "--user", "", "--produce", "5"), "--user is empty"),
        (("set", "--ip", "no.such.host.invalid", "--connections", "5"), "not a valid IP"),
        (("remove", "--user", "nobody-has-this-name"), "has no such quotas"),
    ],
)
def test_the_command_line_says_what_is_wrong(bootstrap: str, arguments: tuple[str, ...], words: str) -> None:
    done = CommandLine(bootstrap)("quotas", *arguments)
    assert done.returncode in (1, 2)
    assert words in " ".join(done.stderr.split())
