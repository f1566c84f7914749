"""The console under attack: hostile records, requests that are none, peers that neither send nor read."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import pyarrow.parquet as pq
import pytest
from tests.rigs.console_thread import ApiClient, ConsoleThread, console_settings
from tests.rigs.waiting import wait_until

from tidelog import Producer, TopicPartition
from tidelog.console import connection
from tidelog.console.api import messages_api
from tidelog.console.records import export as export_file
from tidelog.console.records import filter_process, search
from tidelog.console.records.decoding.choice import Choice
from tidelog.console.records.decoding.record_decoder import RecordDecoder
from tidelog.console.records.filter_process import FilterProcess
from tidelog.console.records.raw import RawRecord
from tidelog.testing import LocalBroker, broker

CLUSTER = "/clusters/main"
NEVER_ENDS = r'matches(text, "(a+)+$")'


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker(topics={"orders": 2, "deep": 1, "endless": 1, "large": 1, "headers": 1}) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", json.dumps({"id": number}).encode(), partition=number % 2)
            producer.send("deep", b"[" * 100_000 + b"]" * 100_000)
            producer.send("deep", b'{"a":' * 900 + b"1" + b"}" * 900)
            producer.send("deep", b'{"fine": 1}')
            producer.send("endless", b"a" * 60 + b"b")
            for _ in range(30):
                producer.send("large", b"x" * 900_000)
                producer.send("headers", b"x", headers=[("h", b"y" * 4000)] * 200)
        running.admin.alter_group_offsets("readers", {TopicPartition("orders", 0): 0})
        yield running


@pytest.fixture(scope="module")
def console(cluster: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    with ConsoleThread(
        console_settings(tmp_path_factory.mktemp("console"), cluster.bootstrap_servers)
    ) as running:
        yield running


@pytest.fixture
def api(console: ConsoleThread) -> Iterator[ApiClient]:
    with console.client() as client:
        yield client


def raw_connection(console: ConsoleThread) -> socket.socket:
    host, _, port = console.url.removeprefix("http://").rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(60.0)
    made.connect((host, int(port)))
    return made


def wait_until_cut(peer: socket.socket) -> None:
    """Until the console ends the connection; raises ``TimeoutError`` where it does not."""
    with suppress(ConnectionError):  # it was reset, which is an end, too
        while peer.recv(65_536):
            pass


def test_records_nested_deeply_leave_their_topic_readable(api: ApiClient) -> None:
    path = f"{CLUSTER}/topics/deep/messages"
    shown = api.get(path, place="oldest")["records"]
    assert [each["value"]["kind"] for each in shown][::2] == ["text", "json"]
    assert api.get(f"{path}/0/0")["value"]["size"] == 200_000
    for filter_ in ("str(value) == 'x'", "value == [[[1]]]", 'matches(str(value), "fine")'):
        page = api.get(path, place="oldest", filter=filter_)
        assert page["progress"]["scanned"] == 3
    assert [each["offset"] for each in page["records"]] == [2]


@pytest.mark.parametrize(
    "path",
    [
        f"/topics/orders/messages?partitions={'9' * 5000}",
        "/topics/orders/messages?partitions=%D9%A3",
        f"/topics/orders/messages/{'9' * 5000}/0",
        f"/topics/orders/messages/0/{'9' * 30}",
        f"/topics/orders/messages?place=time&time_ms={'9' * 30}",
        f"/brokers/{'9' * 5000}/configs",
        "/topics/%E4%B8%AD/messages/export",
        "/topics/a%0D%0AX-Evil:%201/messages/export?format=csv",
        "/topics/none-such/messages/export",
        "/topics/none-such/messages/export?format=parquet",
    ],
)
def test_what_cannot_be_is_refused_and_is_no_bug(api: ApiClient, path: str) -> None:
    answer = api.http.get(f"{CLUSTER}{path}")
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["error"]
    assert "x-evil" not in answer.headers


@pytest.mark.parametrize(
    "body",
    [
        b'{"value": "\xff"}',
        b'{"value": "x", "timestamp_ms": -5}',
        b'{"value": "x", "timestamp_ms": 1000000000000000000000000000000}',
        b'{"value": "x", "partition": 1000000000000000000000000000000}',
        b'{"value": NaN}',
        b"[" * 100_000,
    ],
)
def test_a_record_that_cannot_be_is_refused(api: ApiClient, body: bytes) -> None:
    headers = {"X-Console-Token": api.token, "Content-Type": "application/json"}
    answer = api.http.post(f"{CLUSTER}/topics/orders/messages", content=body, headers=headers)
    assert 400 <= answer.status_code < 500, answer.text


def test_a_record_for_a_partition_that_is_not_there_is_refused_by_name(api: ApiClient) -> None:
    headers = {"X-Console-Token": api.token}
    body = {"value": "x", "partition": 4711}
    answer = api.http.post(f"{CLUSTER}/topics/orders/messages", json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert "topic orders has no partition 4711" in answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/topics/orders/reassign", {"replicas": {"9" * 5000: [1]}}),
        ("/topics/orders/reassign", {"expected": {"9" * 5000: [1]}}),
        ("/topics/orders/messages/resend", {"partition": 0, "offset": -1, "topic": "orders"}),
        ("/topics/orders/redrive", {"filter": "value.price >"}),
        ("/groups/readers/reset", {"to": "latest", "topic": ""}),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_is_no_bug(
    api: ApiClient, path: str, body: dict[str, Any]
) -> None:
    answer = api.try_change("POST", f"{CLUSTER}{path}", **body)
    assert 400 <= answer.status_code < 500, answer.text


def test_partitions_that_are_named_twice_are_read_once(api: ApiClient) -> None:
    page = api.get(f"{CLUSTER}/topics/orders/messages", partitions="0,0, 0")
    assert page["progress"]["total"] == len(page["records"]) == 10


def test_searches_that_begin_at_once_are_bounded(console: ConsoleThread) -> None:
    """Also while none of them has got as far as its consumer."""
    watched = console.console.clusters["main"]
    wait_until(lambda: watched.searches.total() == watched.open_consumers == 0, "other searches to end")

    async def first_event(client: httpx.AsyncClient, begun: asyncio.Event) -> str:
        query = {"place": "tail", "filter": "value.id < 0"}
        address = f"{console.url}/api{CLUSTER}/topics/orders/messages/stream"
        async with client.stream("GET", address, params=query) as stream:
            lines = stream.aiter_lines()
            found = await anext(lines)
            if "failed" not in found:
                await begun.wait()
            return found + await anext(lines)

    async def begin_many() -> list[str]:
        enough = asyncio.Event()
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=60.0, limits=limits) as client:
            streams = [asyncio.create_task(first_event(client, enough)) for _ in range(30)]
            failed = 0
            for done in asyncio.as_completed(streams):
                failed += "TOO_MANY" in await done
                if failed == 10:
                    enough.set()
            return [each.result() for each in streams]

    answers = asyncio.run(asyncio.wait_for(begin_many(), 60.0))
    assert sum("TOO_MANY" in each for each in answers) == 10
    wait_until(lambda: watched.searches.total() == watched.open_consumers == 0, "the searches to end")


@pytest.mark.parametrize("path", ["messages", "messages/export", "messages/export?format=parquet"])
def test_whoever_hangs_up_ends_a_search_that_has_not_answered_yet(
    console: ConsoleThread, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(filter_process, "BATCH_S", 3600.0)
    watched = console.console.clusters["main"]
    with raw_connection(console) as peer:
        query = httpx.QueryParams({"filter": NEVER_ENDS, "place": "oldest"})
        target = f"/api{CLUSTER}/topics/endless/{path}{'&' if '?' in path else '?'}{query}"
        peer.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: watched.open_consumers, "the search to begin")
    wait_until(lambda: watched.searches.total() == watched.open_consumers == 0, "the search to end")


def test_a_peer_that_does_not_read_gives_its_place_back(
    console: ConsoleThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "UNREAD_S", 0.5)
    watched = console.console.clusters["main"]
    with raw_connection(console) as peer:
        target = f"/api{CLUSTER}/topics/large/messages/export"
        peer.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: watched.searches.total(), "the search to begin")
        wait_until(lambda: watched.searches.total() == watched.open_consumers == 0, "the search to end")
        wait_until_cut(peer)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /api/session HTTP/1.1\r\nHost: loc",
        b"GET /api/session HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api",
        b"POST /api/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        b"POST /api/session HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_a_request_that_never_ends_is_cut(
    console: ConsoleThread, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    for name in ("HEAD_S", "BODY_S"):
        monkeypatch.setattr(connection, name, 0.5)
    with raw_connection(console) as peer:
        peer.sendall(sent)
        wait_until_cut(peer)


def test_connections_beyond_all_bounds_are_cut_and_others_are_answered_again(
    console: ConsoleThread, api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 3.0)
    monkeypatch.setattr(connection, "_BEYOND", -470)
    idle = [raw_connection(console) for _ in range(60)]
    try:
        for each in idle:
            wait_until_cut(each)
    finally:
        for each in idle:
            each.close()
    assert httpx.get(f"{console.url}/api/session").status_code == 200


def test_a_request_of_two_lengths_is_refused_and_its_connection_ended(console: ConsoleThread) -> None:
    with raw_connection(console) as peer:
        peer.sendall(
            b"POST /api/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /api/session HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        answer = b""
        while piece := peer.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_the_newest_of_large_records_fit_into_memory(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_HELD_BYTES", 5_000_000)
    page = api.get(f"{CLUSTER}/topics/large/messages", limit=1000)
    assert [each["offset"] for each in page["records"]] == [29, 28, 27, 26, 25]
    assert page["progress"]["ended"] == "scan-limit"


def test_a_page_of_records_with_large_headers_fits_into_memory(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages_api, "_PAGE_BYTES", 1_000_000)
    page = api.get(f"{CLUSTER}/topics/headers/messages", place="oldest", limit=1000)
    assert 0 < len(page["records"]) < 30
    assert page["progress"]["ended"] == "scan-limit"
    monkeypatch.undo()
    page = api.get(f"{CLUSTER}/topics/headers/messages", place="oldest", limit=1000)
    assert (len(page["records"]), page["progress"]["ended"]) == (30, "end")


def exported(api: ApiClient, topic: str, **query: Any) -> list[Any]:
    answer = api.http.get(f"{CLUSTER}/topics/{topic}/messages/export", params={"place": "newest", **query})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_file_of_the_newest_holds_all_of_them_however_little_memory_there_is(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = exported(api, "orders")
    assert [each["timestamp_ms"] for each in whole] == sorted(
        (each["timestamp_ms"] for each in whole), reverse=True
    )
    monkeypatch.setattr(search, "_HELD_BYTES", 2000)
    monkeypatch.setattr(search, "_HELD_MORE", 0)
    monkeypatch.setattr(search, "_BATCH_RECORDS", 3)
    assert len(exported(api, "orders")) == len(whole) == 20
    for limit in (1, 7, 19):
        times = [each["timestamp_ms"] for each in exported(api, "orders", limit=limit)]
        assert sorted(times, reverse=True) == [each["timestamp_ms"] for each in whole[:limit]]
    even = exported(api, "orders", filter="value.id % 2 == 0", limit=9)
    assert sorted(json.loads(each["value"])["id"] for each in even) == list(range(2, 20, 2))
    large = exported(api, "large", limit=12)
    assert [each["offset"] for each in large] == list(range(18, 30))
    file = api.http.get(
        f"{CLUSTER}/topics/orders/messages/export", params={"place": "newest", "format": "parquet"}
    )
    assert pq.read_table(io.BytesIO(file.content)).num_rows == 20


@pytest.mark.parametrize("asked", ["bytes=0-9", "bytes=999999999999-", "x"])
def test_a_part_of_a_file_is_not_to_be_had_and_leaves_nothing_behind(
    api: ApiClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = f"{CLUSTER}/topics/orders/messages/export"
    file = api.http.get(path, params={"format": "parquet"}, headers={"Range": asked})
    assert file.status_code == 200
    assert len(file.content) == int(file.headers["Content-Length"])
    assert pq.read_table(io.BytesIO(file.content)).num_rows == 20
    assert list(tmp_path.iterdir()) == []


def test_a_parquet_file_does_not_fill_the_disk(
    api: ApiClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(messages_api, "_PARQUET_BYTES", 100)
    path = f"{CLUSTER}/topics/large/messages/export"
    refused = api.http.get(path, params={"format": "parquet"})
    assert (refused.status_code, refused.json()["code"]) == (413, "TOO_LARGE")
    assert list(tmp_path.iterdir()) == []
    assert api.http.get(path, params={"format": "csv"}).status_code == 200


def test_parquet_files_that_nobody_takes_do_not_fill_the_disk_either(
    console: ConsoleThread, api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = f"{CLUSTER}/topics/orders/messages/export", {"format": "parquet"}
    taken = threading.Event()
    really_sent = messages_api._chunks

    async def sent_when_taken(file: BinaryIO) -> AsyncIterator[bytes]:
        while not taken.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async for chunk in really_sent(file):
            yield chunk

    monkeypatch.setattr(messages_api, "_chunks", sent_when_taken)
    with ExitStack() as held:
        answers = [
            held.enter_context(api.http.stream("GET", path, params=asked))
            for _ in range(export_file._PARQUET_FILES)
        ]
        refused = api.http.get(path, params=asked)
        assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY")
        assert api.http.get(path, params={"format": "csv"}).status_code == 200
        answers.pop().close()  # nobody wants it any more
        wait_until(
            lambda: console.console.parquet_export_slots._taken.total() == len(answers), "room for another"
        )
        taken.set()
        assert [pq.read_table(io.BytesIO(each.read())).num_rows for each in answers] == [20] * len(answers)
        wait_until(lambda: not console.console.parquet_export_slots._taken, "room for all")
    assert api.http.get(path, params=asked).status_code == 200


@pytest.mark.parametrize("place", ["newest", "oldest"])
@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet"])
def test_a_file_that_would_not_hold_all_that_was_asked_for_is_refused(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, place: str, format_: str
) -> None:
    monkeypatch.setattr(search, "_FILTERED_RECORDS", 3)
    path = f"{CLUSTER}/topics/orders/messages/export"
    query: dict[str, str | int] = {
        "place": place,
        "format": format_,
        "filter": "value.id == 100",
        "scan_limit": 6,
    }
    refused = api.http.get(path, params=query)
    assert (refused.status_code, refused.json()["code"]) == (422, "SCAN_LIMIT")
    assert "start from a time or an offset" in refused.json()["error"]
    assert api.http.get(path, params={**query, "scan_limit": 20}).status_code == 200


def test_a_file_that_has_begun_and_cannot_be_whole_breaks_off(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(search, "_FILTERED_RECORDS", 3)
    query: dict[str, str | int] = {"filter": "value.id >= 0", "scan_limit": 6}
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
        api.http.get(f"{CLUSTER}/topics/orders/messages/export", params=query)
    assert "start from a time or an offset" in caplog.text


def test_long_names_push_nothing_out_of_the_audit_log(api: ApiClient, console: ConsoleThread) -> None:
    topic = f"audited-{uuid.uuid4().hex[:8]}"
    api.change("POST", f"{CLUSTER}/topics", name=topic, partitions=1)
    for _ in range(3):
        api.try_change("POST", f"{CLUSTER}/topics", name="x" * 5_000_000, configs={"y" * 5_000_000: "z"})
        api.try_change("POST", f"{CLUSTER}/groups/g/reset", to="latest", topic="\n\r{}" * 500_000)
        assert api.try_change("POST", f"/clusters/{'%01' * 20_000}/topics", name="x").status_code == 404
    noted = api.get(f"{CLUSTER}/audit")
    assert topic in {each["target"] for each in noted}
    assert (noted[0]["cluster"], noted[0]["action"]) == ("", "create topic")
    assert "20000 characters" in noted[0]["details"]["cluster"]
    assert (console.settings.data_dir / "audit.jsonl").stat().st_size < 100_000


def test_modules_of_the_directory_that_the_console_runs_in_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("import pathlib; pathlib.Path('owned').touch()")
    monkeypatch.chdir(tmp_path)

    async def filtered() -> list[RawRecord]:
        async with FilterProcess("offset == 1") as chosen:
            return await chosen.chosen([RawRecord(0, number, 0, None, None, []) for number in range(3)])

    async def decoded() -> list[RawRecord]:
        async with RecordDecoder("topic", None, Choice("auto", "msgpack")) as decoder:
            return await decoder.decoded([RawRecord(0, 0, 0, None, b"\x81\xa1a\x01", [])])

    assert [each.offset for each in asyncio.run(filtered())] == [1]
    assert [each.readable_value for each in asyncio.run(decoded())] == [b'{"a":1}']
    assert not (tmp_path / "owned").exists()
