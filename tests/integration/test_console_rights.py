"""Who may do what, on every endpoint of the API: a table, which a new endpoint has to be added to."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import pyarrow.parquet as pq
import pytest
from tests.rigs.console_thread import ConsoleThread, console_settings
from tests.rigs.told_queries import RUNNING, running_pipeline
from tests.rigs.waiting import wait_until

from tidelog import Consumer, Producer, TopicPartition
from tidelog.console.auth.audit import now_ms
from tidelog.console.auth.person import Account, person_of
from tidelog.console.auth.sessions import Session
from tidelog.console.settings import ClusterSettings, Grant, LoginSettings, MaskRule, Role
from tidelog.console.watching.changes import Event
from tidelog.console.web import all_endpoints
from tidelog.testing import LocalBroker, broker

PHONE = "13800138000"
SEEN, HIDDEN = "seen-1", "hidden-1"
GRANTS = (
    Grant("some-viewer", Role.VIEWER, topics=("seen-*",)),
    Grant("some-operator", Role.OPERATOR, topics=("seen-*",)),
    Grant("some-admin", Role.ADMIN, topics=("seen-*",)),
    Grant("viewer", Role.VIEWER),
    Grant("operator", Role.OPERATOR),
    Grant("admin", Role.ADMIN),
    Grant("elsewhere", Role.ADMIN, clusters=("other",)),
)
PEOPLE = ("stranger", "nobody", *(each.user for each in GRANTS))


class Rule(NamedTuple):
    """What an endpoint needs.

    ``about`` is a topic, a group of one, the cluster as far as he sees it, all of it, or whoever asks, if he
    has logged in; an endpoint without a rule is for everybody. Requests are such that nothing happens where
    they are allowed: they name what is not there.
    """

    needs: Role
    about: str
    body: Mapping[str, Any] = MappingProxyType({})


VIEW, OPERATE, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN
TOPIC = "{topic}"
RULE = {"principal": "User:x", "operation": "read", "resource": "topic", "name": "x"}
TABLE: dict[str, Rule | None] = {
    "session": None,
    "log_in": None,
    "log_out": None,
    "begin_login": None,
    "tokens": Rule(VIEW, "oneself"),
    "make_token": Rule(VIEW, "oneself", {"name": ""}),
    "revoke_token": Rule(VIEW, "oneself"),
    "overview": Rule(VIEW, "cluster"),
    "rates": Rule(VIEW, "cluster"),
    "events": Rule(VIEW, "cluster"),
    "live": Rule(VIEW, "cluster"),
    "brokers": Rule(VIEW, "cluster"),
    "broker_configs": Rule(VIEW, "cluster"),
    "alter_broker_configs": Rule(ADMIN, "all", {"configs": {}}),
    "clients": Rule(VIEW, "all"),
    "requests": Rule(VIEW, "cluster"),
    "topology": Rule(VIEW, "cluster"),
    "topics": Rule(VIEW, "cluster"),
    "topic": Rule(VIEW, "topic"),
    "topic_rates": Rule(VIEW, "topic"),
    "topic_configs": Rule(VIEW, "topic"),
    "alter_topic_configs": Rule(OPERATE, "topic", {"configs": {}}),
    "create_topic": Rule(OPERATE, "topic", {"name": TOPIC, "dry_run": True}),
    "delete_topic": Rule(ADMIN, "topic", {"name": "another"}),
    "add_partitions": Rule(OPERATE, "topic", {"partitions": 1}),
    "delete_records": Rule(ADMIN, "topic", {"before": {}}),
    "elect_leaders": Rule(OPERATE, "topic"),
    "messages": Rule(VIEW, "topic"),
    "message_stream": Rule(VIEW, "topic"),
    "export": Rule(VIEW, "topic"),
    "message": Rule(VIEW, "topic"),
    "produce": Rule(OPERATE, "topic", {"value": "x", "value_encoding": "base64"}),
    "resend": Rule(OPERATE, "topic", {"partition": 0, "offset": 99, "topic": TOPIC}),
    "redrive": Rule(VIEW, "topic", {"offset": 99, "place": "offset"}),
    "groups": Rule(VIEW, "cluster"),
    "group": Rule(VIEW, "group"),
    "group_lag": Rule(VIEW, "cluster"),
    "reset": Rule(OPERATE, "group", {"to": "latest", "topic": TOPIC, "partitions": [99], "dry_run": False}),
    "delete_group": Rule(ADMIN, "all", {"name": "another"}),
    "spark": Rule(VIEW, "all"),
    "transactions": Rule(VIEW, "all"),
    "fence_producer": Rule(ADMIN, "all", {"name": "another"}),
    "acls": Rule(VIEW, "all"),
    "add_acl": Rule(ADMIN, "all", RULE),
    "remove_acl": Rule(ADMIN, "all", RULE),
    "users": Rule(VIEW, "all"),
    "set_user": Rule(ADMIN, "all", {"name": "", "password": ""}),
    "remove_user": Rule(ADMIN, "all", {"name": "another"}),
    "quotas": Rule(VIEW, "all"),
    "set_quotas": Rule(ADMIN, "all", {"entity": {}, "quotas": {}}),
    "audit": Rule(VIEW, "all"),
    "reassign": Rule(ADMIN, "topic"),
    "reassignments": Rule(VIEW, "topic"),
    "cancel_reassignment": Rule(ADMIN, "topic"),
    "unthrottle": Rule(ADMIN, "all"),
    "group_partition_lag": Rule(VIEW, "topic", {"topic": TOPIC}),
    "alerts": Rule(VIEW, "cluster"),
    "explain_access": Rule(VIEW, "all", {"principal": "User:x", "resource": "topic", "name": "x"}),
    "delegation_tokens": Rule(VIEW, "all"),
    "create_delegation_token": Rule(ADMIN, "all"),
    "renew_delegation_token": Rule(ADMIN, "all"),
    "expire_delegation_token": Rule(ADMIN, "all"),
    "telemetry": Rule(VIEW, "all"),
    "client_figures": Rule(VIEW, "all"),
    "subscriptions": Rule(VIEW, "all"),
    "set_subscription": Rule(ADMIN, "all", {"metrics": 1}),
    "remove_subscription": Rule(ADMIN, "all"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker(topics=[SEEN, HIDDEN, "seen-masked", "seen-target"]) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for topic in (SEEN, HIDDEN):
                producer.send(topic, b"x")
            value = json.dumps({"phone": PHONE, "id": 1}).encode()
            headers = [("secret", PHONE.encode()), ("topic", b"seen-target")]
            producer.send("seen-masked", value, key=PHONE.encode(), headers=headers)
            producer.send("seen-masked", PHONE.encode())
        for topic in (SEEN, HIDDEN):
            with Consumer(
                bootstrap_servers=running.bootstrap_servers,
                group_id=f"group-of-{topic}",
                auto_offset_reset="earliest",
            ) as consumer:
                consumer.subscribe([topic])
                wait_until(lambda: consumer.poll(1.0), "the record")
                consumer.commit()
        yield running


@pytest.fixture(scope="module", params=["changes", "read-only"])
def console(
    request: pytest.FixtureRequest, cluster: LocalBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleThread]:
    settings = console_settings(
        tmp_path_factory.mktemp("console"),
        cluster.bootstrap_servers,
        login=LoginSettings("main"),
        grants=GRANTS,
        masks=(MaskRule(topics=("seen-masked",), fields=("phone",), headers=("secret",), key=True),),
        read_only=request.param == "read-only",
    )
    with ConsoleThread(settings) as running:
        yield running


class Browser(NamedTuple):
    """Somebody's session, as if he had logged in."""

    http: httpx.Client
    session: Session

    def status(self, method: str, path: str, body: dict[str, Any]) -> int:
        more = {"params" if method == "GET" else "json": body}
        headers = {"X-Console-Token": self.session.token}
        with self.http.stream(method, path, headers=headers, **more) as answer:  # type: ignore[arg-type]
            if answer.status_code in (401, 403):
                answer.read()
                if answer.json()["code"] not in ("FORBIDDEN", "LOGIN_NEEDED"):
                    return 400  # the cluster refuses it to the console, whoever asks
            return answer.status_code


def browser(console: ConsoleThread, name: str) -> Browser:
    inner = console.console
    person = None if name == "stranger" else inner.named(Account(name))
    session = inner.sessions.begin(person)
    http = httpx.Client(base_url=f"{console.url}/api", timeout=60.0, cookies={inner.cookie: session.id})
    return Browser(http, session)


def path_of(path: str, topic: str) -> str:
    named = {"cluster": "main", "topic": topic, "partition": "0", "offset": "0", "broker": "1", "id": "x"}
    return path.format(**named, group=f"group-of-{topic}")


def is_allowed(name: str, rule: Rule, topic: str, *, changes: bool, read_only: bool) -> bool:
    if rule.about == "oneself":
        return name != "stranger"
    if name in ("stranger", "nobody", "elsewhere"):
        return False
    role = Role[name.removeprefix("some-").upper()]
    if read_only and changes:
        role = min(role, Role.VIEWER)
    if role < rule.needs:
        return False
    return not name.startswith("some-") or rule.about == "cluster" or (rule.about != "all" and topic == SEEN)


def test_every_endpoint_is_in_the_table() -> None:
    assert {each.name for each in all_endpoints()} == set(TABLE), "say in TABLE who may use a new endpoint"


@pytest.mark.parametrize("name", PEOPLE)
def test_everybody_may_do_what_his_roles_say_and_nothing_else(console: ConsoleThread, name: str) -> None:
    somebody = browser(console, name)
    refused: list[str] = []
    with somebody.http:
        for endpoint in all_endpoints():
            rule = TABLE[endpoint.name]
            if rule is None:
                continue
            for topic in (SEEN, HIDDEN):
                body = {key: topic if value == TOPIC else value for key, value in rule.body.items()}
                status = somebody.status(endpoint.method, path_of(endpoint.path, topic), body)
                allowed = is_allowed(
                    name,
                    rule,
                    topic,
                    changes=bool(endpoint.action) and rule.needs > Role.VIEWER,
                    read_only=console.settings.read_only,
                )
                expected = "allowed" if allowed else "refused"
                found = "refused" if status in (401, 403) else "allowed"
                assert (endpoint.name, topic, found) == (endpoint.name, topic, expected), status
                assert status < 500, endpoint.name
                if endpoint.action and not allowed:
                    refused.append(endpoint.action)
    lines = (console.settings.data_dir / "audit.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    noted = [each["action"] for each in entries if each["user"] == name and each["outcome"] != "done"]
    if name == "stranger":
        assert noted == []  # who has not logged in could fill the log
    else:
        assert set(refused) <= set(noted)


def test_what_is_refused_to_strangers_leaves_nothing_behind(console: ConsoleThread) -> None:
    log = console.settings.data_dir / "audit.jsonl"
    before, sessions = log.read_bytes(), len(console.console.sessions._by_id)
    somebody = browser(console, "stranger")
    headers = {"X-Console-Token": somebody.session.token}
    with somebody.http, httpx.Client(base_url=f"{console.url}/api") as nobody:
        for http in (nobody, somebody.http):
            for method in ("POST", "DELETE"):
                assert http.request(method, "/session", json={}).status_code == 403
        assert somebody.http.post("/session", content=b"{", headers=headers).status_code == 400
        assert somebody.http.request("DELETE", "/session", json={}, headers=headers).status_code == 200
        # A link on another site must not take the place of the session that somebody has here.
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        refused = nobody.get("/session", headers=link)
        assert (refused.status_code, refused.headers.get("set-cookie")) == (403, None)
    assert log.read_bytes() == before
    assert len(console.console.sessions._by_id) == sessions


def test_what_strangers_send_is_short_and_is_not_kept(console: ConsoleThread, cluster: LocalBroker) -> None:
    megabyte = "x" * 1_000_000
    stranger, operator = browser(console, "stranger"), browser(console, "operator")
    assert console.console.login is not None

    def sent(somebody: Browser, path: str, **body: str) -> int:
        headers = {"X-Console-Token": somebody.session.token}
        return somebody.http.post(path, json=body, headers=headers).status_code

    with stranger.http, operator.http:
        assert sent(stranger, "/session", user="u" * 300, password="x") == 400
        assert sent(stranger, "/session", user="u", password="x" * 2000) == 400
        assert sent(stranger, "/session", user="u", password=megabyte) == 413
        assert sent(stranger, "/session/provider", place=megabyte) == 413
        assert not console.console.login._failed
        topic = cluster.create_topic(f"large-{console.settings.read_only}")
        written = sent(operator, f"/clusters/main/topics/{topic}/messages", value=megabyte)
        assert written == (403 if console.settings.read_only else 200)


def test_nobody_hears_of_groups_of_topics_that_he_may_not_see(console: ConsoleThread) -> None:
    everything, some = browser(console, "viewer"), browser(console, "some-viewer")
    with everything.http, some.http:
        wait_until(
            lambda: f"group-of-{HIDDEN}" in everything.http.get("/clusters/main/groups").text, "the groups"
        )
        assert everything.http.get("/clusters/main/overview").json()["groups"] >= 2
        assert some.http.get("/clusters/main/overview").json()["groups"] == 1
        for page in ("overview", "events?limit=200", "topology", "topics", "groups"):
            assert HIDDEN not in some.http.get(f"/clusters/main/{page}").text, page


def test_figures_of_brokers_and_charts_are_those_of_the_topics_that_somebody_may_see(tmp_path: Path) -> None:
    def told(somebody: Browser, page: str) -> Any:
        return somebody.http.get(f"/clusters/main/{page}").json()

    def most_bytes_a_second(somebody: Browser) -> float:
        return max((values[1] for _, values in told(somebody, "rates")), default=0.0)

    with broker(topics=[SEEN, HIDDEN]) as running:
        settings = console_settings(
            tmp_path, running.bootstrap_servers, login=LoginSettings("main"), grants=GRANTS
        )
        with (
            Producer(bootstrap_servers=running.bootstrap_servers) as producer,
            ConsoleThread(settings) as console,
        ):
            everything, some = browser(console, "viewer"), browser(console, "some-viewer")

            def is_charted(somebody: Browser, topic: str, value: bytes) -> bool:
                producer.send(topic, value).result()
                return most_bytes_a_second(somebody) > len(value)

            with everything.http, some.http:
                wait_until(lambda: is_charted(some, SEEN, b"x"), "the rate of some topics")
                wait_until(lambda: is_charted(everything, HIDDEN, b"x" * 100_000), "the rate of all topics")
                assert 1 < most_bytes_a_second(some) < 100_000
                (whole,), (part,) = told(everything, "brokers"), told(some, "brokers")
    assert [whole[each] for each in ("leaders", "replicas", "in_sync")] == [2, 2, 2]
    assert [part[each] for each in ("leaders", "replicas", "in_sync")] == [1, 1, 1]
    assert 0 < part["size_bytes"] < whole["size_bytes"] - 100_000
    assert [each["size_bytes"] for each in part["log_dirs"]] == [part["size_bytes"]]


def test_the_feed_of_somebody_is_full_and_tells_nothing_of_other_topics(console: ConsoleThread) -> None:
    def told(kind: str, **args: str | int) -> Event:
        return Event(now_ms(), kind, "info", dict(args))

    moved = told("leaders-moved", **{"from": 1, "to": 2, "count": 77})
    mine = [told("topic-created", topic=f"seen-{number}") for number in range(50)]
    others = [told("topic-created", topic=HIDDEN) for _ in range(100)]
    watched = console.console.clusters["main"]
    watched._unwritten += [moved, *mine, *others]
    everything, some = browser(console, "viewer"), browser(console, "some-viewer")
    with everything.http, some.http:
        wait_until(lambda: "leaders-moved" in everything.http.get("/clusters/main/events?limit=200").text)
        found = some.http.get("/clusters/main/events?limit=100").json()
    created = [each["args"]["topic"] for each in found if each["kind"] == "topic-created"]
    assert created[:50] == [f"seen-{number}" for number in reversed(range(50))]
    assert "leaders-moved" not in {each["kind"] for each in found}


def test_of_a_group_that_reads_hidden_topics_too_only_the_others_are_told_and_moved(
    console: ConsoleThread, cluster: LocalBroker
) -> None:
    group = f"mixed-group-{console.settings.read_only}"
    places = {TopicPartition(SEEN, 0): 0, TopicPartition(HIDDEN, 0): 0}
    cluster.admin.alter_group_offsets(group, places)
    everything, some = browser(console, "viewer"), browser(console, "some-viewer")
    with everything.http, some.http:

        def row(somebody: Browser) -> dict[str, Any]:
            rows = somebody.http.get("/clusters/main/groups").json()
            return next((each for each in rows if each["group"] == group), {"partitions": 0})

        wait_until(lambda: row(everything)["partitions"] == 2, "the group")
        assert (row(some)["topics"], row(some)["partitions"]) == (1, 1)
        path = f"/clusters/main/groups/{group}/reset"
        headers = {"X-Console-Token": some.session.token}
        refused = some.http.post(path, json={"to": "latest"}, headers=headers)
        assert refused.status_code == 403
        assert HIDDEN not in refused.text
        assert "reads topics that some-viewer has no access to" in refused.json()["error"]
        plan = some.http.post(path, json={"to": "latest", "topic": SEEN}, headers=headers).json()
        assert [(each["topic"], each["new"]) for each in plan["offsets"]] == [(SEEN, 1)]
    cluster.admin.delete_groups([group])


@pytest.mark.parametrize("name", ["some-viewer", "some-operator"])
def test_a_group_that_reads_hidden_topics_alone_is_neither_told_of_nor_moved(
    console: ConsoleThread, cluster: LocalBroker, name: str
) -> None:
    group = f"group-of-{HIDDEN}"
    before = cluster.admin.list_group_offsets([group])[group].offsets
    planned = {"topic": SEEN, "partition": 0, "current": None, "new": 0}
    somebody = browser(console, name)
    with somebody.http:
        path = "/clusters/main/groups/{}/reset"
        headers = {"X-Console-Token": somebody.session.token}
        for body in (
            {"to": "latest", "topic": SEEN},
            {"plan": [planned]},
            {"plan": [planned], "topic": SEEN},
        ):
            for dry_run in (True, False):
                asked = {**body, "dry_run": dry_run}
                refused = somebody.http.post(path.format(group), json=asked, headers=headers)
                assert refused.status_code == 403, asked
                assert "members" not in refused.text
                assert "topic of group" in refused.text or not dry_run
        # Of one that is not there the cluster decides: Kafka before 4.0 lets it be prepared.
        asked = {"to": "earliest", "topic": SEEN}
        assert somebody.http.post(path.format("new"), json=asked, headers=headers).status_code == 404
        assert group not in somebody.http.get("/clusters/main/groups").text
    assert cluster.admin.list_group_offsets([group])[group].offsets == before


def test_who_names_a_cluster_that_is_not_there_is_told_of_those_only_that_he_may_see(
    console: ConsoleThread,
) -> None:
    for clusters, told in ((("test-*",), "none"), (("test-*", "main"), "main")):
        tester = person_of("tester", (Grant("tester", Role.VIEWER, clusters=clusters),), Role.ADMIN)
        session = console.console.sessions.begin(tester)
        cookies = {console.console.cookie: session.id}
        answer = httpx.get(f"{console.url}/api/clusters/test-nope/topics", cookies=cookies, timeout=60.0)
        assert (answer.status_code, answer.json()["error"]) == (
            404,
            f"cluster test-nope does not exist; your clusters: {told}",
        )


def test_transactional_ids_are_drawn_for_those_only_who_see_all_topics(tmp_path: Path) -> None:
    with broker(topics=[SEEN]) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers, transactional_id="payroll") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(SEEN, b"x")
            producer.commit_transaction()
        settings = console_settings(
            tmp_path, running.bootstrap_servers, login=LoginSettings("main"), grants=GRANTS
        )
        with ConsoleThread(settings) as console:
            everything, some = browser(console, "viewer"), browser(console, "some-viewer")
            with everything.http, some.http:
                path = "/clusters/main/topology"
                wait_until(lambda: "payroll" in everything.http.get(path).text, "the producer's name")
                part = some.http.get(path).json()
    assert [each["target"] for each in part["edges"]] == [f"topic {SEEN}"]
    assert "payroll" not in str(part)


def test_clients_are_drawn_for_those_only_who_see_all_topics(console: ConsoleThread) -> None:
    told = {"host": "10.9.8.7", "client_id": "shop", "producer_ids": list(range(1000))}
    console.console.clusters["main"].producer_clients.note({1: {"connections": [told]}})
    everything, some = browser(console, "viewer"), browser(console, "some-viewer")
    with everything.http, some.http:
        all_of_it, part = (each.http.get("/clusters/main/topology").json() for each in (everything, some))
    drawn, seen = (
        [each for each in found["nodes"] if each["kind"] == "producer"] for found in (all_of_it, part)
    )
    assert [(each["name"], each["detail"]) for each in drawn] == [("shop", "10.9.8.7")]
    assert {each["name"].partition(" ")[0] for each in seen} == {"producer"}  # and a number
    assert "shop" not in str(part)
    assert "10.9.8.7" not in str(part)


def test_checkpoints_are_told_of_to_those_only_who_see_all_clusters(tmp_path: Path) -> None:
    """Which cluster a checkpoint is about is in none of its files."""
    for folder, text in (("offsets", 'v1\n{}\n{"payroll":{"0":7}}'), ("commits", "v1\n{}")):
        (tmp_path / "wages" / folder).mkdir(parents=True)
        (tmp_path / "wages" / folder / "0").write_text(text)
    with broker(topics=["orders"]) as running, running_pipeline(tmp_path / "pipelines"):
        at = {"bootstrap.servers": running.bootstrap_servers}
        settings = console_settings(
            tmp_path / "console",
            running.bootstrap_servers,
            clusters=(ClusterSettings("main", at), ClusterSettings("test", at)),
            login=LoginSettings("main"),
            grants=(Grant("viewer", Role.VIEWER), Grant("tester", Role.VIEWER, clusters=("test",))),
            pipelines=tmp_path / "pipelines",
            checkpoints=(tmp_path / "wages",),
        )
        with ConsoleThread(settings) as console:
            everything, some = browser(console, "viewer"), browser(console, "tester")
            with everything.http, some.http:
                told, part = (each.http.get("/clusters/test/spark") for each in (everything, some))
                drawn, less = (each.http.get("/clusters/test/topology").json() for each in (everything, some))
    assert told.json()["configured"]
    assert "payroll" in told.text
    assert RUNNING in {each["name"] for each in told.json()["pipelines"] if each["running"]}
    assert [part.json()[each] for each in ("configured", "pipelines", "queries")] == [False, [], []]
    assert str(tmp_path) not in part.text
    assert f"pipeline {RUNNING}" in {each["id"] for each in drawn["nodes"]}
    assert {each["kind"] for each in less["nodes"]} == {"topic"}


def test_a_new_group_is_told_to_those_only_who_see_what_it_reads(
    console: ConsoleThread, cluster: LocalBroker
) -> None:
    group = f"late-group-{console.settings.read_only}"
    everything, some = browser(console, "viewer"), browser(console, "some-viewer")
    with everything.http, some.http:
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group) as consumer:
            consumer.subscribe([HIDDEN])
            wait_until(
                lambda: consumer.poll(0.1) or group in everything.http.get("/clusters/main/events").text,
                "the event",
            )
        assert group not in some.http.get("/clusters/main/events?limit=200").text


def test_a_stream_ends_with_the_session(console: ConsoleThread) -> None:
    for path in (f"/clusters/main/topics/{SEEN}/messages/stream?place=tail", "/clusters/main/live"):
        somebody = browser(console, "viewer")
        with somebody.http, somebody.http.stream("GET", path) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("event: ")
            console.console.sessions.end(somebody.session)
            assert len(list(lines)) < 1000


def test_what_is_masked_comes_out_nowhere(console: ConsoleThread) -> None:
    somebody = browser(console, "some-viewer")
    path = "/clusters/main/topics/seen-masked"
    with somebody.http:
        for unmasked in ("", "unmasked=true&"):
            shown = [
                somebody.http.get(f"{path}/messages{more}{unmasked}").text
                for more in ("?", "/0/0?", "/0/1?", "/stream?", "/export?", "/export?format=csv&")
            ]
            file = somebody.http.get(f"{path}/messages/export?format=parquet&{unmasked}").content
            shown += [str(pq.read_table(io.BytesIO(file)).to_pylist()), repr(file)]
            assert not [each for each in shown if PHONE in each or PHONE[:6] in each]
            for filter_ in (
                f'value.phone.startswith("{PHONE[:3]}")',
                f'"{PHONE[:4]}" in text',
                f'matches(text, "{PHONE[3:7]}")',
                f'headers.secret == "{PHONE}"',
                f'header_list[0][1].find("{PHONE[4:8]}") >= 0',
                f'key == "{PHONE}"',
                f"len(value.phone) == {len(PHONE)}",
                f"size == {2 * len(PHONE) + len(json.dumps({'phone': '', 'id': 1}))}",
                f"int(text) == {PHONE}",
            ):
                query = httpx.QueryParams({"filter": filter_})
                found = somebody.http.get(f"{path}/messages?{unmasked}{query}").json()
                assert found["records"] == [], filter_
    operator = browser(console, "some-operator")
    with operator.http:
        assert PHONE in operator.http.get(f"{path}/messages?unmasked=true").text


def test_what_is_masked_cannot_be_sent_elsewhere(console: ConsoleThread, cluster: LocalBroker) -> None:
    mixed = person_of(
        "mixed",
        (
            Grant("mixed", Role.VIEWER, topics=("seen-masked",)),
            Grant("mixed", Role.OPERATOR, topics=("seen-target",)),
        ),
        Role.ADMIN,
    )
    session = console.console.sessions.begin(mixed)
    with httpx.Client(
        base_url=f"{console.url}/api", timeout=60.0, cookies={console.console.cookie: session.id}
    ) as http:
        headers = {"X-Console-Token": session.token}
        for path, body in (
            ("messages/resend", {"partition": 0, "offset": 0, "topic": "seen-target"}),
            ("redrive", {"dry_run": True}),
            ("redrive", {"dry_run": False}),
        ):
            answer = http.post(f"/clusters/main/topics/seen-masked/{path}", json=body, headers=headers)
            assert answer.status_code == 403
            assert "masked" in answer.json()["error"]
        assert http.get("/clusters/main/topics/seen-target/messages").json()["records"] == []


def test_nothing_of_a_batch_of_letters_is_sent_where_a_right_is_missing(
    console: ConsoleThread, cluster: LocalBroker
) -> None:
    letters = cluster.create_topic(f"seen-letters-{console.settings.read_only}")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for target in ("seen-target", HIDDEN):
            producer.send(letters, b"a letter", headers=[("topic", target.encode())])
    somebody = browser(console, "some-operator")
    with somebody.http:
        answer = somebody.http.post(
            f"/clusters/main/topics/{letters}/redrive",
            json={"dry_run": False},
            headers={"X-Console-Token": somebody.session.token},
        )
        assert answer.status_code == 403
        assert somebody.http.get("/clusters/main/topics/seen-target/messages").json()["records"] == []
