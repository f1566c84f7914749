"""What the console's API administers: partitions and leaders, access, tokens, telemetry, events, lag."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.console_thread import ApiClient, ConsoleThread, console_settings
from tests.rigs.sasl_broker import port_of, sasl_broker
from tests.rigs.tls_files import HOSTS, TlsFiles
from tests.rigs.waiting import wait_until

from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.client.resources import AlterConfigOp, ConfigResource, ResourceType
from tidelog.console.settings import ClusterSettings
from tidelog.testing import LocalBroker, broker
from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.broker_thread import BrokerThread
from tidelog.testing.reserved_port import ReservedPort

CLUSTER = "/clusters/main"
RECORD = b"x" * 10_000


def name(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    # Small fetches: what has begun is not cut, so that a throttle holds back what is asked for next.
    options = {"replica.fetch.max.bytes": "20000"}
    with ClusterThread(tmp_path_factory.mktemp("three"), 3, options=options) as running:
        yield running


@pytest.fixture(scope="module")
def admin(three: ClusterThread) -> Iterator[Admin]:
    with Admin(bootstrap_servers=three.bootstrap) as found:
        yield found


@pytest.fixture(scope="module")
def api(three: ClusterThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    settings = console_settings(tmp_path_factory.mktemp("console"), three.bootstrap)
    with ConsoleThread(settings) as console, console.client() as client:
        yield client


def new_topic(three: ClusterThread, admin: Admin, *replicas: list[int], records: int = 0) -> str:
    """A topic whose partitions are on the given brokers, with records in the first."""
    topic = name("moved")
    (made,) = admin.create_topics([NewTopic(topic, assignments=dict(enumerate(replicas)))])
    made.raise_for_error()
    with Producer(bootstrap_servers=three.bootstrap, linger_ms=0, batch_size=1) as producer:
        for sent in [producer.send(topic, RECORD, partition=0) for _ in range(records)]:
            sent.result(timeout=60)
    return topic


def replicas_of(api: ApiClient, topic: str) -> list[list[int]]:
    return [each["replicas"] for each in api.get(f"{CLUSTER}/topics/{topic}")["partitions"]]


def moves_of(api: ApiClient, topic: str) -> list[Any]:
    found = api.get(f"{CLUSTER}/topics/{topic}/reassignments")
    assert found["problem"] is None
    moves: list[Any] = found["moves"]
    return moves


def test_partitions_are_moved_by_a_plan_that_says_what_is_copied(
    three: ClusterThread, admin: Admin, api: ApiClient
) -> None:
    topic = new_topic(three, admin, [1], [1], records=3)
    path = f"{CLUSTER}/topics/{topic}"
    wait_until(
        lambda: (api.get(path)["partitions"][0]["size_bytes"] or 0) > 3 * len(RECORD), "a look at the size"
    )
    plan = api.change("POST", f"{path}/reassign", brokers=[2, 3], replication_factor=2)
    assert plan["dry_run"]
    assert [sorted(each["new"]) for each in plan["moves"]] == [[2, 3], [2, 3]]
    assert [each["removed"] for each in plan["moves"]] == [[1], [1]]
    assert plan["copied_bytes"] == sum(plan["copied_by_broker"].values()) > 6 * len(RECORD)
    assert replicas_of(api, topic) == [[1], [1]]

    shown = {
        "replicas": {str(each["partition"]): each["new"] for each in plan["moves"]},
        "expected": {str(each["partition"]): each["current"] for each in plan["moves"]},
    }
    api.change("POST", f"{path}/reassign", **shown, dry_run=False)
    wait_until(
        lambda: (
            not moves_of(api, topic) and replicas_of(api, topic) == [each["new"] for each in plan["moves"]]
        ),
        "the partitions to arrive",
    )
    again = api.try_change("POST", f"{path}/reassign", **shown, dry_run=False)
    assert (again.status_code, again.json()["code"]) == (409, "PLAN_OUTDATED")
    wait_until(
        lambda: any(
            each["kind"] == "replicas-changed" and each["args"]["topic"] == topic
            for each in api.get(f"{CLUSTER}/events")
        ),
        "the event",
    )


def test_a_throttled_move_shows_its_progress_and_is_cancelled_with_its_throttle(
    three: ClusterThread, admin: Admin, api: ApiClient
) -> None:
    topic = new_topic(three, admin, [1, 2], records=40)
    path = f"{CLUSTER}/topics/{topic}"
    api.change("POST", f"{path}/reassign", replicas={"0": [2, 3]}, throttle_bytes=1, dry_run=False)
    (move,) = moves_of(api, topic)
    assert move["removing"] == [1]
    assert [each["broker"] for each in move["adding"]] == [3]
    wait_until(lambda: (moves_of(api, topic)[0]["adding"][0]["bytes"] or 0) > 0, "something to be copied")
    (move,) = moves_of(api, topic)
    assert move["adding"][0]["bytes"] < move["size_bytes"]
    assert not move["adding"][0]["in_sync"]
    throttle = api.get(f"{path}/reassignments")["throttle"]
    assert throttle == {"1": 1, "2": 1, "3": 1}
    held = api.try_change("DELETE", f"{CLUSTER}/throttle")
    assert (held.status_code, held.json()["code"]) == (409, "MOVING")
    api.change("POST", f"{path}/reassign/cancel")
    wait_until(lambda: not moves_of(api, topic), "the move to be given up")
    wait_until(lambda: not api.get(f"{path}/reassignments")["throttle"], "the throttle to go")
    assert [sorted(each) for each in replicas_of(api, topic)] == [[1, 2]]
    assert api.change("POST", f"{path}/reassign/cancel")["remark"] == "no reassignments are in progress"
    assert api.change("DELETE", f"{CLUSTER}/throttle")["remark"] == "no throttle is set"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"brokers": [7]}, "there is no broker 7: the brokers are 1, 2, 3"),
        ({"brokers": [1], "replication_factor": 2}, "1 broker is too few for 2 replicas"),
        ({"replication_factor": 0}, "replication_factor"),
        ({"replicas": {"0": [1, 1]}}, "only once"),
        ({"replicas": {"9": [1]}}, "the topic has no partition 9"),
        ({"replicas": {"one": [1]}}, "invalid partition"),
        ({"replicas": {"0": [1]}, "brokers": [1]}, "not both"),
        ({"throttle_bytes": 0}, "above 0"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_a_sentence(
    three: ClusterThread, admin: Admin, api: ApiClient, asked: dict[str, Any], said: str
) -> None:
    topic = new_topic(three, admin, [1])
    refused = api.try_change("POST", f"{CLUSTER}/topics/{topic}/reassign", **asked)
    assert refused.status_code in (400, 404)
    assert said in refused.json()["error"]


def test_preferred_leaders_are_elected_and_unclean_elections_need_the_typed_name(
    three: ClusterThread, admin: Admin, api: ApiClient
) -> None:
    topic = new_topic(three, admin, [1, 2], [2, 3])
    path = f"{CLUSTER}/topics/{topic}"
    api.change("POST", f"{path}/reassign", replicas={"0": [2, 1]}, dry_run=False)
    wait_until(lambda: replicas_of(api, topic)[0] == [2, 1], "another preferred leader")
    # Brokers may give leadership back by themselves; either way the preferred replica leads then.
    found = api.change("POST", f"{path}/elect-leaders", partitions=[0])
    assert (found["elected"], found["refused"]) in (([0], []), ([], []))
    wait_until(lambda: api.get(path)["partitions"][0]["leader"] == 2, "the preferred leader")
    found = api.change("POST", f"{path}/elect-leaders")
    assert found == {"elected": [], "not_needed": [0, 1], "refused": []}
    untyped = api.try_change("POST", f"{path}/elect-leaders", type="unclean")
    assert (untyped.status_code, untyped.json()["code"]) == (400, "NAME_NOT_TYPED")
    found = api.change("POST", f"{path}/elect-leaders", type="unclean", name=topic)
    assert found == {"elected": [], "not_needed": [0, 1], "refused": []}
    assert api.try_change("POST", f"{path}/elect-leaders", partitions=[5]).status_code == 404


def test_an_unclean_election_gives_a_partition_a_leader_again(
    three: ClusterThread, admin: Admin, api: ApiClient
) -> None:
    """Last in this file's cluster: broker 3 goes and comes back."""
    topic = new_topic(three, admin, [3, 2])
    path = f"{CLUSTER}/topics/{topic}"
    three.stop(2)
    wait_until(lambda: api.get(path)["partitions"][0]["in_sync"] == [3], "broker 2 out of sync")
    three.stop(3)
    try:
        wait_until(lambda: api.get(path)["partitions"][0]["leader"] is None, "no leader")
        three.start(2)
        wait_until(lambda: len(api.get(f"{CLUSTER}/brokers")) == 2, "broker 2")
        found = api.change("POST", f"{path}/elect-leaders", type="unclean", name=topic)
        assert (found["elected"], found["refused"]) == ([0], [])
        wait_until(lambda: api.get(path)["partitions"][0]["leader"] == 2, "a leader that was not in sync")
    finally:
        three.start(3)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    """A console over a broker that checks access rules; it is a super user there itself."""
    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
    }
    with (
        broker(options=options) as running,
        ConsoleThread(
            console_settings(tmp_path_factory.mktemp("guarded"), running.bootstrap_servers)
        ) as console,
        console.client() as client,
    ):
        yield client


def rule(principal: str, operation: str, resource: str, named: str, **more: str) -> dict[str, str]:
    given = {"principal": principal, "operation": operation, "resource": resource, "name": named}
    return {"permission": "allow", "pattern": "literal", "host": "*", **given, **more}


def test_it_is_explained_who_may_do_what_and_which_rule_decides(guarded: ApiClient) -> None:
    reads = rule("User:alice", "read", "topic", "pay", pattern="prefixed")
    denies = rule("User:*", "write", "topic", "*", permission="deny", host="10.0.0.7")
    others = rule("User:bob", "all", "topic", "payments")
    for each in (reads, denies, others):
        guarded.change("POST", f"{CLUSTER}/acls", **each)

    def ask(principal: str, operation: str, named: str = "payments", host: str = "*") -> Any:
        asked = {"principal": principal, "operation": operation, "name": named, "host": host}
        found = guarded.get(f"{CLUSTER}/acls/explain", resource="topic", **asked)
        assert found["super_users"] == ["User:ANONYMOUS", "User:root"]
        assert found["open_without_rules"] is False
        (answer,) = found["answers"]
        deciding = [each["rule"] for each in answer["rules"] if each["decides"]]
        return answer["allowed"], answer["reason"], deciding

    assert ask("User:alice", "read") == (True, "rule", [reads])
    assert ask("User:alice", "describe") == (True, "rule", [reads])  # reading implies it
    assert ask("User:alice", "write") == (False, "not allowed", [])
    assert ask("User:alice", "read", "orders") == (False, "not allowed", [])  # the wildcard covers it
    assert ask("User:bob", "write") == (True, "rule", [others])
    assert ask("User:bob", "write", host="10.0.0.7") == (False, "rule", [denies])
    assert ask("User:root", "write", host="10.0.0.7") == (True, "super user", [])

    query = {"principal": "User:alice", "resource": "topic", "name": "payments"}
    every = guarded.get(f"{CLUSTER}/acls/explain", **query)["answers"]
    assert {each["operation"]: each["allowed"] for each in every}["read"]
    (read,) = (each for each in every if each["operation"] == "read")
    effects = {each["rule"]["principal"]: each["effect"] for each in read["rules"]}
    assert effects == {"User:alice": "allows", "User:*": "other host", "User:bob": "other principal"}
    group = {"principal": "User:alice", "resource": "group", "name": "g", "operation": "read"}
    (answer,) = guarded.get(f"{CLUSTER}/acls/explain", **group)["answers"]
    assert (answer["allowed"], answer["reason"], answer["rules"]) == (False, "no rule", [])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"principal": "alice"}, "write it as User:alice"),
        ({"resource": "table"}, "invalid resource type"),
        ({"operation": "create_tokens"}, "does not apply to a topic"),
        ({"host": "laptop.example"}, "invalid IP address"),
        ({"name": ""}, "specify the name of the topic"),
    ],
)
def test_questions_that_make_no_sense_are_refused(
    guarded: ApiClient, asked: dict[str, str], said: str
) -> None:
    query = {"principal": "User:alice", "resource": "topic", "name": "t", "operation": "read", **asked}
    refused = guarded.http.get(f"{CLUSTER}/acls/explain", params=query)
    assert refused.status_code == 400
    assert said in refused.json()["error"]


def test_brokers_without_access_rules_say_so(api: ApiClient) -> None:
    refused = api.http.get(
        f"{CLUSTER}/acls/explain", params={"principal": "User:a", "resource": "topic", "name": "t"}
    )
    assert refused.json()["code"] == "SECURITY_DISABLED"


@pytest.fixture(scope="module")
def lending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """A broker with delegation tokens."""
    with sasl_broker(
        tmp_path_factory.mktemp("lending"),
        delegation_token_secret_key="brokers-only",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:admin",
    ) as running:
        yield running


def login(running: BrokerThread, **more: object) -> dict[str, object]:
    known = {
        "bootstrap.servers": f"127.0.0.1:{port_of(running)}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": "admin-secret",
    }
    return {**known, **more}


def test_delegation_tokens_are_made_renewed_and_ended_and_told_once(
    lending: BrokerThread, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    clusters = (ClusterSettings("main", login(lending)),)
    with (
        ConsoleThread(console_settings(tmp_path, "", clusters=clusters)) as console,
        console.client() as api,
    ):
        assert api.get(f"{CLUSTER}/delegation-tokens") == []
        asked = {"owner": "User:carol", "renewers": ["User:admin"], "max_lifetime_ms": 3_600_000}
        made = api.change("POST", f"{CLUSTER}/delegation-tokens", **asked)
        token, password = made["token"], made["hmac"]
        assert (token["owner"], token["requester"]) == ("User:carol", "User:admin")
        assert api.get(f"{CLUSTER}/delegation-tokens") == [token]
        by_token = login(
            lending,
            **{
                "sasl.username": token["token_id"],
                "sasl.password": password,
                "sasl.tokenauth": "true",
            },
        )
        with Admin(by_token) as carol:
            assert carol.list_topics() == []
        path = f"{CLUSTER}/delegation-tokens/{token['token_id']}"
        renewed = api.change("POST", f"{path}/renew", period_ms=7_200_000)
        assert renewed["expires_ms"] == token["max_ms"]
        assert api.change("DELETE", path)["expires_ms"] <= token["max_ms"]
        assert api.get(f"{CLUSTER}/delegation-tokens") == []
        assert api.try_change("DELETE", path).status_code == 404
        refused = api.try_change("POST", f"{CLUSTER}/delegation-tokens", owner="carol")
        assert (refused.status_code, "User:alice" in refused.json()["error"]) == (400, True)
        audit = (tmp_path / "audit.jsonl").read_text()
    assert token["token_id"] in audit
    assert password not in audit + caplog.text
    assert password.encode() not in (tmp_path / "history.sqlite").read_bytes()


def test_brokers_without_tokens_and_unknown_consoles_are_told_what_to_do(api: ApiClient) -> None:
    refused = api.http.get(f"{CLUSTER}/delegation-tokens")
    assert refused.json()["code"] in (
        "DELEGATION_TOKEN_AUTH_DISABLED",
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    )


def test_clients_telemetry_is_subscribed_to_and_shown(tmp_path: Path) -> None:
    with (
        ReservedPort() as metrics,
        broker(options={"metrics.listeners": f"127.0.0.1:{metrics.port}"}) as running,
        ConsoleThread(console_settings(tmp_path, running.bootstrap_servers)) as console,
        console.client() as api,
    ):
        assert api.get(f"{CLUSTER}/client-metrics") == []
        path = f"{CLUSTER}/client-metrics/fast"
        wanted = {"metrics": ["*"], "interval_ms": 100, "match": ["client_id=shop.*"]}
        api.change("PUT", path, **wanted)
        assert api.get(f"{CLUSTER}/client-metrics") == [{"name": "fast", **wanted}]
        refused = api.try_change("PUT", path, metrics=["*"], interval_ms=1)
        assert (refused.status_code, "between 100" in refused.json()["error"]) == (400, True)
        assert api.try_change("PUT", path, metrics=[]).status_code == 400

        def pushing() -> dict[str, Any]:
            return {each["client_id"]: each for each in api.get(f"{CLUSTER}/telemetry")["clients"]}

        topic = running.create_topic(name("sold"))
        with (
            Producer(bootstrap_servers=running.bootstrap_servers, client_id="shop-till") as producer,
            Consumer(
                bootstrap_servers=running.bootstrap_servers, client_id="shop-books", group_id="books"
            ) as consumer,
        ):
            producer.send(topic, b"x").result(60)
            consumer.subscribe([topic])

            def both() -> bool:
                consumer.poll(0.1)
                found = pushing()
                return (
                    found.keys() >= {"shop-till", "shop-books"}
                    and found["shop-till"]["figures"].get("producer_record_send_rate", 0) > 0
                    and found["shop-books"]["figures"].get("consumer_coordinator_assigned_partitions") == 1
                )

            wait_until(both, "both clients to push")
            till, books = (pushing()[each] for each in ("shop-till", "shop-books"))
            assert (till["kind"], books["kind"]) == ("producer", "consumer")
            assert till["software"].startswith("tidelog")
            assert books["about"]["group_id"] == "books"
            figures = api.get(f"{CLUSTER}/telemetry/{till['instance_id']}")
            sent = "kafka_client_producer_topic_record_send_total"
            assert [each["labels"] for each in figures if each["name"] == sent] == [f'topic="{topic}"']
        assert api.http.get(f"{CLUSTER}/telemetry/nobody").status_code == 404
        api.change("DELETE", path)
        assert api.get(f"{CLUSTER}/client-metrics") == []
        assert api.try_change("DELETE", path).status_code == 404


def test_brokers_that_tell_no_telemetry_are_named(api: ApiClient) -> None:
    found = api.get(f"{CLUSTER}/telemetry")
    assert found["clients"] == []
    assert len(found["problems"]) == 3
    assert "metrics.listeners" in found["problems"][0]


@pytest.fixture(scope="module")
def one() -> Iterator[LocalBroker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def one_api(one: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    settings = console_settings(tmp_path_factory.mktemp("one"), one.bootstrap_servers)
    with ConsoleThread(settings) as console, console.client() as client:
        yield client


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_tells_why_it_has_rebalanced(one: LocalBroker, one_api: ApiClient, protocol: Any) -> None:
    api, group = one_api, name(f"why-{protocol}")
    topic = one.create_topic(name("read"), partitions=2)

    def consumer(client_id: str) -> Consumer:
        return Consumer(
            bootstrap_servers=one.bootstrap_servers,
            group_id=group,
            client_id=client_id,
            group_protocol=protocol,
            metadata_max_age_ms=500,
        )

    def rebalances() -> list[dict[str, Any]]:
        found = api.get(f"{CLUSTER}/groups/{group}")["rebalances"]
        assert all(each["kind"] == "group-rebalanced" for each in found)
        return [each["args"] for each in found]

    def told(reason: str, *polled: Consumer) -> dict[str, Any]:
        def seen() -> bool:
            for each in polled:
                each.poll(0.05)
            return any(reason in each for each in rebalances())

        wait_until(seen, f"the reason {reason}")
        return next(each for each in rebalances() if reason in each)

    def share(each: Consumer, partitions: int, *polled: Consumer) -> None:
        def has() -> bool:
            for one_of in polled:
                one_of.poll(0.05)
            return len(each.assignment()) == partitions

        wait_until(has, f"{partitions} partitions")

    with consumer("first") as first:
        first.subscribe([topic])
        share(first, 2, first)
        wait_until(
            lambda: api.get(f"{CLUSTER}/groups/{group}")["state"] == "Stable", "the group to be stable"
        )
        api.wait_for_look()
        with consumer("second") as second:
            second.subscribe([topic])
            share(second, 1, first, second)
            joined = told("joined", first, second)
            assert joined["joined_names"] == "second (127.0.0.1)"
            assert joined["topics"] == topic
        assert told("left", first)["left_names"] == "second (127.0.0.1)"
        share(first, 2, first)
        api.wait_for_look()
        api.change("POST", f"{CLUSTER}/topics/{topic}/partitions", partitions=3)
        share(first, 3, first)
        assert told("grown", first)["grown_names"] == f"{topic} (2 → 3)"
    kinds = {each["kind"] for each in api.get(f"{CLUSTER}/events", limit=200)}
    assert "group-rebalanced" in kinds


def test_changed_configs_are_told_with_who_has_changed_them_here(
    one: LocalBroker, one_api: ApiClient
) -> None:
    api, topic = one_api, one.create_topic(name("set"))

    def told(kind: str, config: str) -> dict[str, Any] | None:
        found: list[dict[str, Any]] = [
            each["args"]
            for each in api.get(f"{CLUSTER}/events", limit=200)
            if each["kind"] == kind and each["args"]["config"] == config
        ]
        return found[0] if found else None

    resource = ConfigResource(ResourceType.TOPIC, topic)
    with Admin(bootstrap_servers=one.bootstrap_servers) as admin:
        # Until the console knows the topic's configs there is nothing to compare with.
        attempt = itertools.count(1000)

        def noticed() -> bool:
            operation = AlterConfigOp("retention.ms", str(next(attempt)))
            admin.alter_configs({resource: [operation]})[0].raise_for_error()
            return told("topic-config-set", "retention.ms") is not None

        wait_until(noticed, "a change by another program")
    found = told("topic-config-set", "retention.ms")
    assert found is not None
    assert (found["topic"], "user" in found) == (topic, False)
    api.change("PUT", f"{CLUSTER}/topics/{topic}/configs", configs={"max.message.bytes": "5000"})
    wait_until(lambda: told("topic-config-set", "max.message.bytes"), "the change")
    assert told("topic-config-set", "max.message.bytes") == {
        "topic": topic,
        "config": "max.message.bytes",
        "now": "5000",
        "user": "anonymous",
    }
    (only,) = api.get(f"{CLUSTER}/brokers")
    assert only["certificate_expires_ms"] is None
    path = f"{CLUSTER}/brokers/{only['id']}/configs"
    api.change("PUT", path, configs={"log.cleaner.threads": "2"})
    wait_until(lambda: told("broker-config-set", "log.cleaner.threads"), "the broker's change")
    api.change("PUT", path, configs={"log.cleaner.threads": None})
    wait_until(lambda: told("broker-config-removed", "log.cleaner.threads"), "its removal")


def _expires_ms(api: ApiClient) -> int:
    """When the certificate of the only broker expires; 0 until it has shown one."""
    (only,) = api.get(f"{CLUSTER}/brokers")
    return int(only["certificate_expires_ms"] or 0)


def test_a_certificate_that_expires_soon_is_told_once(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "tls")
    soon = files.pair("soon.pem", files.authority.issue("server", HOSTS, days=5))
    options = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(soon),
        "ssl.truststore.location": str(files.trust),
    }
    with BrokerProcess(tmp_path / "data", options=options) as running:
        client = {
            "bootstrap.servers": running.bootstrap,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(files.trust),
        }
        settings = console_settings(tmp_path / "console", "", clusters=(ClusterSettings("main", client),))

        def warnings(api: ApiClient) -> list[dict[str, Any]]:
            events = api.get(f"{CLUSTER}/events", limit=200)
            return [each for each in events if each["kind"] == "certificate-expires"]

        for _ in range(2):  # also after a restart
            with ConsoleThread(settings) as console, console.client() as api:
                wait_until(lambda api=api: warnings(api), "the warning")  # type: ignore[misc]
                api.wait_for_look()
                (event,) = warnings(api)
                assert (event["level"], event["args"]["days"]) == ("bad", 7)
                wait_until(lambda api=api: _expires_ms(api), "a handshake")  # type: ignore[misc]
                left_days = (_expires_ms(api) - time.time() * 1000) / 86_400_000
                assert 4 < left_days < 6


def test_lag_of_single_partitions_is_kept_while_they_are_behind(one: LocalBroker, one_api: ApiClient) -> None:
    api, group = one_api, name("behind")
    topic = one.create_topic(name("slow"), partitions=3)
    with Producer(bootstrap_servers=one.bootstrap_servers) as producer:
        for partition, records in ((0, 5), (1, 2), (2, 1)):
            for _ in range(records):
                producer.send(topic, b"x", partition=partition)
    with Admin(bootstrap_servers=one.bootstrap_servers) as admin:
        begun = {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 0, TopicPartition(topic, 2): 1}
        for result in admin.alter_group_offsets(group, begun):
            result.raise_for_error()
    path = f"{CLUSTER}/groups/{group}/lag/partitions"

    def found(**more: int) -> list[tuple[int, int]]:
        told = api.get(path, topic=topic, **more)["partitions"]
        return [(each["partition"], each["points"][-1][1][0]) for each in told]

    wait_until(lambda: found() == [(0, 4), (1, 2)], "the partitions that are behind, the furthest first")
    assert found(partition=1) == [(1, 2)]
    assert api.get(path, topic=topic, limit=1)["left_out"] == 1
    api.change("POST", f"{CLUSTER}/groups/{group}/reset", to="latest", dry_run=False)
    wait_until(lambda: found() == [(0, 0), (1, 0)], "that they have caught up")
    assert api.get(path, topic="another")["partitions"] == []
