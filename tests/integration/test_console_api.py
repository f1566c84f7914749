"""The console's API against a real broker: topics, records, groups, events, and who may do what."""

from __future__ import annotations

import base64
import io
import itertools
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pyarrow.parquet as pq
import pytest
from tests.rigs.console_thread import ApiClient, ConsoleThread, console_settings
from tests.rigs.waiting import wait_until

from tidelog import Consumer, Producer, TopicPartition
from tidelog.console.api import messages_api
from tidelog.console.records import filter_process, search
from tidelog.console.settings import Grant, Listen, MaskRule, Role
from tidelog.spark.dead_letters.letter import HEADERS
from tidelog.testing import LocalBroker, broker

CLUSTER = "/clusters/main"
PHONE = "13800138000"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker(topics={"orders": 2}) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(100):
                value = json.dumps({"id": number, "price": number * 10, "user": {"phone": PHONE}})
                producer.send(
                    "orders",
                    value.encode(),
                    key=b"o-%d" % number,
                    headers=[("trace", b"t-%d" % number), ("trace", b"again")],
                )
        yield running


@pytest.fixture(scope="module")
def console(cluster: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    masks = (MaskRule(topics=("masked*",), fields=("phone", "contact.*"), headers=("secret",), key=True),)
    data_dir = tmp_path_factory.mktemp("console")
    with ConsoleThread(console_settings(data_dir, cluster.bootstrap_servers, masks=masks)) as running:
        yield running


@pytest.fixture(scope="module")
def api(console: ConsoleThread) -> Iterator[ApiClient]:
    with console.client() as client:
        yield client


def new_topic(api: ApiClient, stem: str, **more: Any) -> str:
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    api.change("POST", f"{CLUSTER}/topics", name=name, partitions=1, **more)
    return name


def write(api: ApiClient, topic: str, *values: str | None, **more: Any) -> None:
    for value in values:
        api.change("POST", f"{CLUSTER}/topics/{topic}/messages", value=value, **more)


def values_of(page: Any) -> list[str]:
    return [each["value"]["text"] for each in page["records"]]


def test_topics_are_found_sorted_and_paged(api: ApiClient) -> None:
    names = {new_topic(api, "paged") for _ in range(3)}
    page = api.get(f"{CLUSTER}/topics", search="PAGED", limit=2)
    assert page["matched"] == 3
    assert len(page["topics"]) == 2
    rest = api.get(f"{CLUSTER}/topics", search="paged", start=2)
    assert {each["name"] for each in (*page["topics"], *rest["topics"])} == names
    largest = api.get(f"{CLUSTER}/topics", sort="size", descending=True, limit=1)
    assert largest["topics"][0]["name"] == "orders"
    assert [each["name"] for each in api.get(f"{CLUSTER}/topics", names="orders")["topics"]] == ["orders"]


def test_a_topic_is_created_changed_and_deleted_behind_its_typed_name(api: ApiClient) -> None:
    name = new_topic(api, "life", configs={"retention.ms": "60000"})
    path = f"{CLUSTER}/topics/{name}"
    configs = {each["name"]: each for each in api.get(f"{path}/configs")}
    assert configs["retention.ms"]["value"] == "60000"
    assert configs["retention.ms"]["documentation"]
    assert configs["max.message.bytes"]["default"] == "1048588"
    shown = {"group": "Retention", "display_name": "Retention (ms)", "is_required": True}
    assert configs["retention.ms"].items() >= shown.items()
    # Group by group, as forms show them; a list may be empty.
    assert [*dict.fromkeys(each["group"] for each in configs.values())][:2] == ["Retention", "Compaction"]
    assert not configs["cleanup.policy"]["is_required"]
    after = api.change("PUT", f"{path}/configs", configs={"retention.ms": None})
    assert next(each for each in after if each["name"] == "retention.ms")["value"] == "604800000"
    api.change("POST", f"{path}/partitions", partitions=3)
    assert len(api.get(path)["partitions"]) == 3
    refused = api.try_change("DELETE", path, name="something else")
    assert (refused.status_code, refused.json()["code"]) == (400, "NAME_NOT_TYPED")
    api.change("DELETE", path, name=name)
    assert api.http.get(path).status_code == 404


def test_records_are_read_from_each_place(api: ApiClient) -> None:
    path = f"{CLUSTER}/topics/orders/messages"
    newest = api.get(path, limit=5)
    times = [each["timestamp_ms"] for each in newest["records"]]
    assert len(times) == 5
    assert times == sorted(times, reverse=True)
    assert newest["progress"]["scanned"] <= 10  # not the whole topic
    first = newest["records"][0]
    assert [each["name"] for each in first["headers"]] == ["trace", "trace"]
    assert first["value"]["kind"] == "json"
    oldest = api.get(path, place="oldest", limit=1000)
    assert {json.loads(each)["id"] for each in values_of(oldest)} == set(range(100))
    assert oldest["progress"]["ended"] == "end"
    by_offset = api.get(path, place="offset", offset=3, partitions="1", limit=2)
    assert [(each["partition"], each["offset"]) for each in by_offset["records"]] == [(1, 3), (1, 4)]
    time_ms = oldest["records"][-1]["timestamp_ms"]
    by_time = api.get(path, place="time", time_ms=time_ms + 1)
    assert all(each["timestamp_ms"] > time_ms for each in by_time["records"])


def test_a_filter_chooses_records_and_says_how_far_it_looked(api: ApiClient) -> None:
    page = api.get(
        f"{CLUSTER}/topics/orders/messages", filter='value.price >= 980 and headers.trace == "again"'
    )
    assert sorted(json.loads(each)["id"] for each in values_of(page)) == [98, 99]
    assert page["progress"]["scanned"] == 100
    assert page["progress"]["ended"] == "end"


def test_a_filter_that_is_no_expression_is_refused_with_a_sentence(api: ApiClient) -> None:
    for text in ("value.price >", "__import__('os')", "(lambda: 1)()"):
        answer = api.http.get(f"{CLUSTER}/topics/orders/messages", params={"filter": text})
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_FILTER"), answer.text


def test_a_filter_that_never_ends_is_ended(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_process, "BATCH_S", 1.0)
    topic = new_topic(api, "slow")
    write(api, topic, "a" * 40 + "b")
    answer = api.http.get(
        f"{CLUSTER}/topics/{topic}/messages", params={"filter": r'matches(text, "(a+)+$")', "limit": 1}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "FILTER_TOO_SLOW")


def test_a_tail_shows_a_record_when_it_is_written(api: ApiClient, console: ConsoleThread) -> None:
    topic = new_topic(api, "tail")
    with api.http.stream(
        "GET", f"{CLUSTER}/topics/{topic}/messages/stream", params={"place": "tail"}
    ) as tail:
        lines = tail.iter_lines()
        assert "event: progress" in lines  # it follows now
        write(api, topic, "here I am")
        assert "event: records" in lines
        assert json.loads(next(lines).removeprefix("data: "))[0]["value"]["text"] == "here I am"


def test_whoever_hangs_up_ends_the_reading(api: ApiClient, console: ConsoleThread) -> None:
    watched = console.console.clusters["main"]
    for filter_ in ("", "value.id < 0"):
        query = {"place": "tail", "filter": filter_}
        with api.http.stream("GET", f"{CLUSTER}/topics/orders/messages/stream", params=query) as tail:
            lines = tail.iter_lines()  # kept: the stream is closed with it
            assert "event: progress" in lines
            assert watched.open_consumers
        wait_until(lambda: watched.open_consumers == 0, "the consumer to be closed")


def test_a_stream_of_looks_goes_on(api: ApiClient) -> None:
    with api.http.stream("GET", f"{CLUSTER}/live") as live:
        lines = live.iter_lines()
        numbers = [json.loads(each[6:])["look"] for each, _ in zip(_data(lines), range(3), strict=False)]
    assert numbers == sorted(set(numbers))


def _data(lines: Iterator[str]) -> Iterator[str]:
    return (each for each in lines if each.startswith("data: "))


def test_hostile_bytes_are_text_or_digits(api: ApiClient, cluster: LocalBroker) -> None:
    topic = new_topic(api, "hostile")
    large = b"x" * 900_000
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"<script>alert(1)</script>", b"\xff\xfe", b"\x00\x1b[31m", large, None):
            producer.send(topic, value, key=b"<b>", headers=[("<u>", b"\xff"), ("none", None)])
    shown = api.get(f"{CLUSTER}/topics/{topic}/messages", place="oldest")["records"]
    assert [each["value"]["kind"] for each in shown] == ["text", "hex", "text", "text", "null"]
    assert shown[0]["value"]["text"] == "<script>alert(1)</script>"
    assert shown[1]["value"]["text"] == "fffe"
    assert shown[3]["value"]["cut"] is True
    assert shown[3]["value"]["size"] == len(large)
    assert len(shown[3]["value"]["text"]) == 4096
    whole = api.get(f"{CLUSTER}/topics/{topic}/messages/0/3")
    assert len(whole["value"]["text"]) == len(large)


def test_exports_hold_every_record(api: ApiClient) -> None:
    path = f"{CLUSTER}/topics/orders/messages/export"
    lines = api.http.get(path, params={"format": "jsonl"}).text.splitlines()
    assert {json.loads(each)["key"] for each in lines} == {f"o-{number}" for number in range(100)}
    answer = api.http.get(path, params={"format": "csv", "filter": "value.id == 7"})
    assert answer.headers["content-disposition"] == 'attachment; filename="orders.csv"'
    header, line = answer.text.splitlines()
    assert header == "partition,offset,timestamp_ms,key,value,headers"
    assert ",o-7," in line
    file = io.BytesIO(api.http.get(path, params={"format": "parquet"}).content)
    rows = pq.read_table(file).to_pylist()
    assert {each["key"] for each in rows} == {b"o-%d" % number for number in range(100)}
    assert [each["name"] for each in rows[0]["headers"]] == ["trace", "trace"]


def test_masked_fields_are_hidden_from_pages_filters_and_exports_until_asked_for(api: ApiClient) -> None:
    topic = new_topic(api, "masked")
    value = json.dumps({"user": {"phone": PHONE}, "contact": {"mail": "a@b.example"}, "id": 1})
    write(
        api, topic, value, "no json", key="alice@example", headers=[{"name": "secret", "value": "s3cr3t-key"}]
    )
    path = f"{CLUSTER}/topics/{topic}/messages"
    everything = (
        api.http.get(path).text + api.http.get(f"{path}/export").text + api.http.get(f"{path}/0/0").text
    )
    for hidden in (PHONE, "a@b.example", "no json", "alice@example", "s3cr3t"):
        assert hidden not in everything
    found = api.get(path, filter=f'value.user.phone == "{PHONE}"')
    assert found["records"] == []
    shown = api.get(path, filter=f'value.user.phone == "{PHONE}"', unmasked=True)
    assert PHONE in values_of(shown)[0]
    assert any(each["action"] == "unmask" for each in api.get(f"{CLUSTER}/audit"))


@pytest.mark.parametrize("place", ["oldest", "newest"])
def test_how_much_was_read_does_not_tell_how_long_masked_fields_are(api: ApiClient, place: str) -> None:
    told = {}
    for phone in ("1" * 10, "1" * 5000):
        topic = new_topic(api, "masked-lengths")
        write(api, topic, json.dumps({"phone": phone, "id": 1}), key=f"ab{phone}yz")
        for unmasked in (False, True):
            page = api.get(f"{CLUSTER}/topics/{topic}/messages", place=place, unmasked=unmasked)
            assert len(page["records"]) == 1
            told[len(phone), unmasked] = page["progress"]["read_bytes"]
    assert told[10, False] == told[5000, False] > 0
    assert told[10, True] < 100 < 10_000 < told[5000, True]


def test_a_record_is_sent_again_elsewhere_with_other_headers(api: ApiClient) -> None:
    target = new_topic(api, "elsewhere")
    api.change(
        "POST",
        f"{CLUSTER}/topics/orders/messages/resend",
        partition=0,
        offset=0,
        topic=target,
        headers=[{"name": "why", "value": "again"}],
    )
    (copy,) = api.get(f"{CLUSTER}/topics/{target}/messages")["records"]
    original = api.get(f"{CLUSTER}/topics/orders/messages/0/0")
    assert copy["value"] == original["value"]
    assert [(each["name"], each["value"]["text"]) for each in copy["headers"]] == [("why", "again")]


def test_headers_that_are_kept_go_as_their_bytes(api: ApiClient, cluster: LocalBroker) -> None:
    source, target = new_topic(api, "masked"), new_topic(api, "elsewhere")
    given = [
        ("lines", b"one\r\ntwo\n"),
        ("long", b"x" * 5000),
        ("a:b", b" outer blanks "),
        ("secret", b"s3cr3t-key"),
        ("raw", b"\xff\x00"),
        ("none", None),
        ("", b""),
        ("twice", b"1"),
        ("twice", b"2"),
    ]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(source, b"value", headers=given)
    path, place = f"{CLUSTER}/topics/{source}/messages/resend", {"partition": 0, "offset": 0, "topic": target}
    api.change("POST", path, **place)
    others = [{"keep": each} for each in range(8)]
    api.change(
        "POST", path, **place, headers=[*others[::-1], {"name": "new", "value": " a\nb "}, {"keep": 0}]
    )
    wrong: tuple[dict[str, str | int], ...] = (
        {"keep": 9},
        {"keep": -1},
        {"keep": 0, "name": "x"},
        {"keep": 0, "value": "x"},
        {"value": "x"},
        {},
    )
    for each in wrong:
        refused = api.try_change("POST", path, **place, headers=[each])
        assert (refused.status_code, refused.json()["code"]) == (400, "BAD_REQUEST"), refused.text
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(target, 0)])
        consumer.seek_to_beginning()
        copies = [consumer.poll(30.0, 1)[0] for _ in range(2)]
        assert consumer.end_offsets([TopicPartition(target, 0)]) == {TopicPartition(target, 0): 2}
    assert list(copies[0].headers) == given
    assert list(copies[1].headers) == [*given[:8][::-1], ("new", b" a\nb "), given[0]]


def test_dead_letters_go_back_to_their_topics_after_a_dry_run(api: ApiClient) -> None:
    letters, origin = new_topic(api, "letters"), new_topic(api, "origin")
    headers = [
        {"name": "topic", "value": origin},
        {"name": "reason", "value": "bad"},
        {"name": "x", "value": "1"},
    ]
    write(api, letters, "one", "two", headers=headers)
    write(api, letters, "stray")
    plan = api.change("POST", f"{CLUSTER}/topics/{letters}/redrive")
    assert plan == {"by_topic": {origin: 2}, "without_origin": 1, "left": 0, "dry_run": True, "ended": "end"}
    assert api.get(f"{CLUSTER}/topics/{origin}/messages")["records"] == []
    assert api.change("POST", f"{CLUSTER}/topics/{letters}/redrive", limit=1)["ended"] == "limit"
    api.change("POST", f"{CLUSTER}/topics/{letters}/redrive", dry_run=False)
    back = api.get(f"{CLUSTER}/topics/{origin}/messages", place="oldest")
    assert values_of(back) == ["one", "two"]
    assert [each["name"] for each in back["records"][0]["headers"]] == ["x", "tidelog-redriven"]
    again = api.change("POST", f"{CLUSTER}/topics/{letters}/redrive", dry_run=False)
    assert again == {"by_topic": {}, "without_origin": 1, "left": 2, "dry_run": False, "ended": "end"}
    # In a topic made anew other letters are where those were.
    api.change("DELETE", f"{CLUSTER}/topics/{letters}", name=letters)
    api.change("POST", f"{CLUSTER}/topics", name=letters, partitions=1)
    write(api, letters, "three", headers=headers)
    api.change("POST", f"{CLUSTER}/topics/{letters}/redrive", dry_run=False)
    assert values_of(api.get(f"{CLUSTER}/topics/{origin}/messages", place="oldest")) == [
        "one",
        "two",
        "three",
    ]


def test_only_letters_that_the_search_finds_go_back(api: ApiClient) -> None:
    letters, origin = new_topic(api, "letters"), new_topic(api, "origin")
    api.change("POST", f"{CLUSTER}/topics/{letters}/partitions", partitions=2)
    packed = base64.b64encode(msgspec.msgpack.encode({"id": 7})).decode()
    for partition in range(2):
        headers = [{"name": "topic", "value": origin}]
        message = {"value": packed, "value_encoding": "base64", "partition": partition, "headers": headers}
        api.change("POST", f"{CLUSTER}/topics/{letters}/messages", **message)

    def found(**asked: object) -> dict[str, int]:
        plan = api.change("POST", f"{CLUSTER}/topics/{letters}/redrive", **asked)
        by_topic: dict[str, int] = plan["by_topic"]
        return by_topic

    assert found() == {origin: 2}
    assert found(partitions="1") == {origin: 1}
    assert found(partitions="1", filter="value.id == 7", value_format="msgpack") == {origin: 1}
    assert found(filter="value.id == 7", value_format="hex") == {}
    refused = api.try_change("POST", f"{CLUSTER}/topics/{letters}/redrive", partitions="2")
    assert refused.status_code == 404


def test_letters_that_do_not_fit_into_memory_are_left_to_the_next_redrive(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, letters = new_topic(api, "origin"), new_topic(api, "pipeline-letters")
    told = {"pipeline": "earnings", "topic": origin, "partition": "0", "timestamp": "-1", "code": "not-json"}
    for offset in range(3):
        fields = {**told, "offset": str(offset), "reason": "no", "record": "whole", "key": "k"}
        headers = [{"name": name, "value": fields[name]} for name in HEADERS if name in fields]
        write(api, letters, "x" * 1000, headers=headers)
    monkeypatch.setattr(search, "_BATCH_RECORDS", 1)
    monkeypatch.setattr(messages_api, "_REDRIVE_BYTES", 4000)
    plan = api.change("POST", f"{CLUSTER}/topics/{letters}/redrive")
    assert (plan["by_topic"], plan["ended"]) == ({origin: 2}, "scan-limit")
    rest = api.change("POST", f"{CLUSTER}/topics/{letters}/redrive", place="offset", offset=2)
    assert (rest["by_topic"], rest["ended"]) == ({origin: 1}, "end")


def test_letters_of_pipelines_go_back_whole_and_once(api: ApiClient, cluster: LocalBroker) -> None:
    origin, letters = new_topic(api, "origin"), new_topic(api, "pipeline-letters")
    write(api, origin, "call 13812345678", "fine")
    told = {"pipeline": "earnings", "topic": origin, "partition": "0", "timestamp": "-1", "code": "not-json"}
    sealed = {**told, "offset": "0", "reason": "no", "record": "sealed", "key": "k", "sealed": "x"}
    whole = {**told, "offset": "1", "reason": "no", "record": "whole", "key": "k", "x": "1"}
    for fields, value in ((sealed, "call tel_k1_x"), (whole, "fine")):
        names = [*HEADERS, *(name for name in fields if name not in HEADERS)]
        write(api, letters, value, headers=[{"name": name, "value": fields[name]} for name in names])
    plan = api.change("POST", f"{CLUSTER}/topics/{letters}/redrive")
    assert plan == {"by_topic": {origin: 2}, "without_origin": 0, "left": 0, "dry_run": True, "ended": "end"}
    api.change("POST", f"{CLUSTER}/topics/{letters}/redrive", dry_run=False)
    back = api.get(f"{CLUSTER}/topics/{origin}/messages", place="oldest")
    assert values_of(back) == ["call 13812345678", "fine", "call 13812345678", "fine"]
    headers = [[each["name"] for each in record["headers"]] for record in back["records"][2:]]
    assert headers == [["tidelog-redriven"], ["x", "tidelog-redriven"]]
    again = api.change("POST", f"{CLUSTER}/topics/{letters}/redrive", dry_run=False)
    assert again == {"by_topic": {}, "without_origin": 0, "left": 2, "dry_run": False, "ended": "end"}


def test_a_groups_lag_is_told_in_records_and_seconds_kept_and_its_offsets_are_moved(
    api: ApiClient, cluster: LocalBroker
) -> None:
    topic, group = new_topic(api, "read"), f"group-{uuid.uuid4().hex[:8]}"
    write(api, topic, *"abcde")
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < 5:
            read += len(consumer.poll(1.0))
        consumer.commit()
        shown = api.get(f"{CLUSTER}/groups/{group}")
        assert [each["partitions"] for each in shown["members"]] == [[f"{topic}-0"]]
        refused = api.try_change("POST", f"{CLUSTER}/groups/{group}/reset", to="earliest", dry_run=False)
        assert (refused.status_code, refused.json()["code"]) == (409, "GROUP_ACTIVE")
    write(api, topic, "f", "g")
    shown = api.get(f"{CLUSTER}/groups/{group}")
    assert (shown["lag"], shown["partitions"][0]["lag"]) == (2, 2)
    assert shown["partitions"][0]["lag_seconds"] >= 0
    plan = api.change("POST", f"{CLUSTER}/groups/{group}/reset", to="shift", number=-3)
    assert [(each["current"], each["new"]) for each in plan["offsets"]] == [(5, 2)]
    assert api.get(f"{CLUSTER}/groups/{group}")["lag"] == 2
    api.change("POST", f"{CLUSTER}/groups/{group}/reset", plan=plan["offsets"], dry_run=False)
    assert api.get(f"{CLUSTER}/groups/{group}")["lag"] == 5
    wait_until(lambda: api.get(f"{CLUSTER}/groups/{group}/lag").get(topic), "the lag in the history")
    assert group in {each["group"] for each in api.get(f"{CLUSTER}/groups")}
    api.change("DELETE", f"{CLUSTER}/groups/{group}", name=group)
    assert group not in {each["group"] for each in api.get(f"{CLUSTER}/groups")}


def test_offsets_are_moved_once_and_by_the_plan_that_was_shown(api: ApiClient, cluster: LocalBroker) -> None:
    topic, group = new_topic(api, "planned"), f"group-{uuid.uuid4().hex[:8]}"
    place = TopicPartition(topic, 0)
    write(api, topic, *"abcdefghij")
    cluster.admin.alter_group_offsets(group, {place: 2})
    path = f"{CLUSTER}/groups/{group}/reset"

    def refused(**body: Any) -> tuple[int, str]:
        answer = api.try_change("POST", path, **body)
        return answer.status_code, answer.json()["code"]

    def committed() -> int:
        return cluster.admin.list_group_offsets([group])[group].offsets[place].offset

    shift = api.change("POST", path, to="shift", number=3)
    end = api.change("POST", path, to="latest")
    write(api, topic, "k")  # a plan to the end is to the end as it was
    assert api.change("POST", path, plan=shift["offsets"])["dry_run"]
    assert committed() == 2
    moved = api.change("POST", path, plan=shift["offsets"], dry_run=False)
    assert (moved["dry_run"], committed()) == (False, 5)
    for plan in (shift, end):  # the same again, as after a lost answer, or in another tab
        said = api.try_change("POST", path, plan=plan["offsets"], dry_run=False)
        assert (said.status_code, said.json()["code"]) == (409, "PLAN_OUTDATED")
        assert f"{topic}-0 is at offset 5 now and was at offset 2" in said.json()["error"]
    assert committed() == 5
    new = api.change("POST", path, to="latest")["offsets"]
    assert [(each["current"], each["new"]) for each in new] == [(5, 11)]
    assert refused(to="shift", number=3, dry_run=False) == (400, "PLAN_NEEDED")
    assert refused(to="latest", plan=new) == refused() == refused(plan=[]) == (400, "BAD_REQUEST")
    assert refused(plan=new + new) == (400, "BAD_REQUEST")
    cluster.admin.delete_records({place: 7})
    gone = [{**new[0], "new": 6}]
    assert refused(plan=gone, dry_run=False) == (409, "PLAN_OUTDATED")
    assert committed() == 5
    api.change("POST", path, plan=new, dry_run=False)
    assert committed() == 11


def test_a_group_may_have_any_name(api: ApiClient, cluster: LocalBroker) -> None:
    group = f"team/<b>ü</b>?#%2F {uuid.uuid4().hex[:8]}"
    cluster.admin.alter_group_offsets(group, {TopicPartition("orders", 0): 1})
    path = f"{CLUSTER}/groups/{quote(group, safe='')}"
    assert api.get(path)["group"] == group
    assert api.change("POST", f"{path}/reset", to="latest")["dry_run"]
    api.change("DELETE", path, name=group)
    assert api.http.get(path).status_code == 404


def test_what_changes_is_in_the_feed_and_what_was_done_in_the_audit_log(api: ApiClient) -> None:
    topic = new_topic(api, "fed")
    kinds = {(each["kind"], each["args"].get("topic")) for each in api.get(f"{CLUSTER}/events", limit=200)}
    assert ("topic-created", topic) in kinds
    entry = next(each for each in api.get(f"{CLUSTER}/audit") if each["target"] == topic)
    assert (entry["action"], entry["outcome"], entry["user"]) == ("create topic", "done", "anonymous")
    api.try_change("DELETE", f"{CLUSTER}/topics/{topic}", name="typo")
    refused = api.get(f"{CLUSTER}/audit")[0]
    assert refused["action"] == "delete topic"
    assert "type the topic's whole name" in refused["outcome"]


def test_every_other_page_answers(api: ApiClient) -> None:
    assert api.get(f"{CLUSTER}/overview")["brokers"] == 1
    (only,) = api.get(f"{CLUSTER}/brokers")
    assert only["is_controller"]
    configs = {each["name"]: each for each in api.get(f"{CLUSTER}/brokers/{only['id']}/configs")}
    assert configs["log.retention.ms"]["group"] == "Retention"
    groups = [each["group"] for each in configs.values()]
    assert len([*itertools.groupby(groups)]) == len(set(groups))
    nodes = {(each["kind"], each["name"]) for each in api.get(f"{CLUSTER}/topology")["nodes"]}
    assert ("topic", "orders") in nodes
    for page in ("transactions", "users", "quotas", "spark", "rates", "clients", "requests"):
        api.get(f"{CLUSTER}/{page}")


def test_the_document_describes_every_operation(api: ApiClient) -> None:
    document = api.get("/openapi.json")
    operation = document["paths"]["/api/clusters/{cluster}/topics/{topic}/messages"]["get"]
    assert {each["name"] for each in operation["parameters"]} >= {"cluster", "topic", "place", "filter"}
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(names) == len(set(names)) > 30


def test_nothing_is_changed_without_the_token_or_from_another_site(api: ApiClient) -> None:
    body = {"name": "forged", "partitions": 1}
    without = api.http.post(f"{CLUSTER}/topics", json=body)
    foreign = api.http.post(
        f"{CLUSTER}/topics",
        json=body,
        headers={"X-Console-Token": api.token, "Origin": "https://evil.example"},
    )
    assert (without.status_code, foreign.status_code) == (403, 403)
    for site in ("cross-site", "same-site"):
        read = api.http.get(f"{CLUSTER}/topics", headers={"Sec-Fetch-Site": site})
        assert read.status_code == 403
    assert api.get(f"{CLUSTER}/topics", names="forged")["topics"] == []


def test_requests_for_foreign_names_are_refused_and_answers_forbid_frames_and_scripts(api: ApiClient) -> None:
    foreign = api.http.get("/session", headers={"Host": "evil.example"})
    assert foreign.status_code == 421
    for answer in (
        foreign,
        api.http.get("/session"),
        api.http.get(str(api.http.base_url).replace("/api", "/")),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    cookie = httpx.get(f"{str(api.http.base_url).rstrip(chr(47))}/session").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()


def test_a_console_that_is_read_only_shows_and_changes_nothing(cluster: LocalBroker, tmp_path: Path) -> None:
    with (
        ConsoleThread(console_settings(tmp_path, cluster.bootstrap_servers, read_only=True)) as console,
        console.client() as api,
    ):
        assert api.get(f"{CLUSTER}/topics/orders/messages")["records"]
        refused = api.try_change("POST", f"{CLUSTER}/topics/orders/messages", value="no")
        assert refused.status_code == 403
        assert "read-only" in refused.json()["error"]


def test_a_cluster_that_is_away_is_said_to_be_and_is_seen_when_it_is_back(tmp_path: Path) -> None:
    with (
        broker(topics=["there"], data_dir=tmp_path / "broker") as running,
        ConsoleThread(console_settings(tmp_path / "console", running.bootstrap_servers)) as console,
        console.client() as api,
    ):
        assert api.get(f"{CLUSTER}/overview")["problem"] is None
        running.kill()
        wait_until(lambda: api.get(f"{CLUSTER}/overview")["problem"], "the problem")
        running.restart()
        wait_until(lambda: api.get(f"{CLUSTER}/overview")["problem"] is None, "the cluster to be back")
        wait_until(
            lambda: (
                {"cluster-silent", "cluster-answers"}
                <= {each["kind"] for each in api.get(f"{CLUSTER}/events")}
            ),
            "both events",
        )


def test_two_clusters_are_kept_apart(cluster: LocalBroker, tmp_path: Path) -> None:
    from tidelog.console.settings import ClusterSettings

    with broker(topics=["elsewhere"]) as other:
        clusters = tuple(
            ClusterSettings(name, {"bootstrap.servers": each.bootstrap_servers}, colour)
            for name, each, colour in (("main", cluster, "green"), ("other", other, "red"))
        )
        settings = console_settings(tmp_path, cluster.bootstrap_servers, clusters=clusters)
        with ConsoleThread(settings) as console, console.client() as api:
            assert [(each["name"], each["colour"]) for each in api.session["clusters"]] == [
                ("main", "green"),
                ("other", "red"),
            ]
            (only,) = api.get("/clusters/other/topics")["topics"]
            assert only["name"] == "elsewhere"


def test_access_rules_users_and_quotas_are_added_and_removed(tmp_path: Path) -> None:
    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with (
        broker(options=options) as running,
        ConsoleThread(console_settings(tmp_path, running.bootstrap_servers)) as console,
        console.client() as api,
    ):
        rule = {
            "principal": "User:alice",
            "operation": "read",
            "resource": "topic",
            "name": "orders",
            "permission": "allow",
            "pattern": "prefixed",
            "host": "*",
        }
        api.change("POST", f"{CLUSTER}/acls", **rule)
        assert api.get(f"{CLUSTER}/acls") == [rule]
        assert api.try_change("POST", f"{CLUSTER}/acls", **{**rule, "operation": "fly"}).status_code == 400
        api.change("DELETE", f"{CLUSTER}/acls", **rule)
        assert api.try_change("DELETE", f"{CLUSTER}/acls", **rule).status_code == 404
        assert api.get(f"{CLUSTER}/acls") == []

        api.change("PUT", f"{CLUSTER}/users", name="alice", password="wonder-land")
        (user,) = api.get(f"{CLUSTER}/users")
        assert user["name"] == "alice"
        assert user["mechanisms"][0].startswith("SCRAM-SHA-512")
        assert api.try_change("DELETE", f"{CLUSTER}/users/alice", name="bob").status_code == 400
        api.change("DELETE", f"{CLUSTER}/users/alice", name="alice")
        assert api.get(f"{CLUSTER}/users") == []

        quota = {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1000.0}}
        api.change("PUT", f"{CLUSTER}/quotas", **quota)
        assert api.get(f"{CLUSTER}/quotas") == [quota]
        api.change("PUT", f"{CLUSTER}/quotas", entity={"user": "alice"}, quotas={"producer_byte_rate": None})
        assert api.get(f"{CLUSTER}/quotas") == []
        assert "wonder-land" not in (tmp_path / "audit.jsonl").read_text()


def test_grants_bound_what_people_see_and_do() -> None:
    from tidelog.console.auth.person import person_of

    grants = (
        Grant("alice", Role.OPERATOR, topics=("orders-*",)),
        Grant("*", Role.VIEWER, clusters=("test",)),
    )
    alice = person_of("alice", grants, Role.ADMIN)
    assert alice.role("prod", "orders-1") is Role.OPERATOR
    assert alice.role("prod", "payments") is Role.NONE
    assert alice.role("prod") is Role.VIEWER
    assert not alice.sees_all_topics("prod")
    assert alice.sees_all_topics("test")
    assert person_of("bob", grants, Role.ADMIN).role("prod") is Role.NONE
    assert person_of("alice", grants, Role.VIEWER).role("prod", "orders-1") is Role.VIEWER


def test_only_loopback_addresses_are_loopback() -> None:
    hosts = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "console.example")
    assert [Listen(each).is_loopback for each in hosts] == [True, True, True, False, False, False]
