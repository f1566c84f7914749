"""Formats of records in the console's API, with a real broker, foreign serializers and a schema registry."""

from __future__ import annotations

import base64
import csv
import io
import json
import struct
import uuid
from collections.abc import Iterator
from typing import Any

import cbor2
import msgpack
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from opentelemetry.proto.trace.v1 import trace_pb2
from tests.rigs.console_thread import ApiClient, ConsoleThread, console_settings
from tests.rigs.schema_registry import SchemaRegistry, send_body

from tidelog import Consumer, Producer
from tidelog.console.records.decoding import registry as registry_module
from tidelog.console.settings import ClusterSettings, MaskRule, RegistrySettings
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.testing import LocalBroker, broker

PASSWORD = "r3gistry-passw0rd"
PHONE = "13800138000"
ORDER = json.dumps(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": "double"}],
    }
)
PERSON = json.dumps(
    {
        "type": "record",
        "name": "Person",
        "fields": [{"name": "phone", "type": "string"}, {"name": "id", "type": "long"}],
    }
)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that run tests may be busy."""
    monkeypatch.setattr(registry_module, "REQUEST_S", 60.0)
    monkeypatch.setattr(registry_module, "SCHEMA_S", 120.0)


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(user="console", password=PASSWORD) as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def api(
    cluster: LocalBroker, registry: SchemaRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiClient]:
    settings = RegistrySettings(registry.url, "console", PASSWORD)
    clusters = (ClusterSettings("main", {"bootstrap.servers": cluster.bootstrap_servers}, registry=settings),)
    masks = (MaskRule(topics=("masked*",), fields=("phone",)),)
    data_dir = tmp_path_factory.mktemp("console")
    made = console_settings(data_dir, cluster.bootstrap_servers, clusters=clusters, masks=masks)
    with ConsoleThread(made) as running, running.client() as client:
        yield client


def new_topic(cluster: LocalBroker, stem: str) -> str:
    return cluster.create_topic(f"{stem}-{uuid.uuid4().hex[:8]}")


def path_of(topic: str, *more: object) -> str:
    return "/".join(("/clusters/main/topics", topic, "messages", *map(str, more)))


def schemas(registry: SchemaRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": f"console:{PASSWORD}"})


def write(cluster: LocalBroker, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    producer = LibrdkafkaProducer({"bootstrap.servers": cluster.bootstrap_servers})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def orders(cluster: LocalBroker, registry: SchemaRegistry, topic: str, count: int = 20) -> None:
    client = schemas(registry)
    keys, values = AvroSerializer(client, '"string"'), AvroSerializer(client, ORDER)
    of_key = SerializationContext(topic, MessageField.KEY)
    of_value = SerializationContext(topic, MessageField.VALUE)
    write(
        cluster,
        topic,
        *(
            (keys(f"o-{number}", of_key), values({"id": number, "price": number / 2}, of_value))
            for number in range(count)
        ),
    )


def told(record: Any, part: str = "value") -> Any:
    field = record[part]
    assert field["kind"] == "json", field
    return json.loads(field["text"])


def test_decoded_records_are_shown_filtered_and_exported(
    api: ApiClient, cluster: LocalBroker, registry: SchemaRegistry
) -> None:
    topic = new_topic(cluster, "avro")
    orders(cluster, registry, topic)
    found = api.get(path_of(topic), filter='value.price > 9 and key == "o-19"')["records"]
    (record,) = found
    assert told(record) == {"id": 19, "price": 9.5}
    assert told(record, "key") == "o-19"
    assert record["value"]["format"] == "avro"
    schema = record["value"]["schema"]
    assert (schema["type"], schema["subject"], schema["name"]) == ("avro", f"{topic}-value", "shop.Order")
    assert record["value"]["hex"].startswith("00")
    assert record["value"]["size"] == len(record["value"]["hex"]) // 2
    whole = api.get(path_of(topic, 0, record["offset"]))
    assert whole["value"] == record["value"]

    query = {"filter": "value.id < 2"}
    lines = api.http.get(path_of(topic, "export"), params=query).text.splitlines()
    first, second = map(json.loads, lines)
    assert json.loads(first["value"]) == {"id": 0, "price": 0.0}
    assert (second["key"], second["value_format"], second["value_schema"]["id"]) == (
        '"o-1"',
        "avro",
        schema["id"],
    )
    rows = list(csv.DictReader(io.StringIO(_export(api, topic, format="csv", **query).decode())))
    assert [json.loads(each["value"])["id"] for each in rows] == [0, 1]
    table = pq.read_table(io.BytesIO(_export(api, topic, format="parquet", **query)))
    assert [json.loads(each)["id"] for each in table["value"].to_pylist()] == [0, 1]
    raw = json.loads(_export(api, topic, limit=1, value_format="hex"))
    assert raw["value"].encode() == struct.pack(">xI", schema["id"]) + bytes(9)


def _export(api: ApiClient, topic: str, **query: Any) -> bytes:
    answer = api.http.get(path_of(topic, "export"), params=query)
    assert answer.status_code == 200, answer.text
    return answer.content


def test_protobuf_and_json_schema_are_decoded(
    api: ApiClient, cluster: LocalBroker, registry: SchemaRegistry
) -> None:
    topic = new_topic(cluster, "others")
    client, context = schemas(registry), SerializationContext(topic, MessageField.VALUE)
    span = trace_pb2.Span(name="read", end_time_unix_nano=1 << 60)
    protobuf = ProtobufSerializer(trace_pb2.Span, client, {"use.deprecated.format": False})
    plain = JSONSerializer('{"title": "n", "type": "object"}', client)
    write(cluster, topic, (b"p", protobuf(span, context)), (b"j", plain({"n": 1}, context)))
    (first,) = api.get(path_of(topic), filter="value.end_time_unix_nano >= 1152921504606846976")["records"]
    assert told(first)["name"] == "read"
    (second,) = api.get(path_of(topic), filter='value.n == 1 and "n" in text and key == "j"')["records"]
    assert second["value"]["format"] == "jsonschema"
    (wrong,) = api.get(path_of(topic), partitions="0", filter='key == "p"', value_format="avro")["records"]
    assert "is Protobuf, not Avro" in wrong["value"]["problem"]
    assert wrong["value"]["kind"] == "hex"


def test_masks_hold_for_decoded_fields_whatever_format_is_chosen(
    api: ApiClient, cluster: LocalBroker, registry: SchemaRegistry
) -> None:
    topic = new_topic(cluster, "masked")
    avro = AvroSerializer(schemas(registry), PERSON)
    person = {"phone": PHONE, "id": 1}
    value = avro(person, SerializationContext(topic, MessageField.VALUE))
    values = (
        value,
        msgpack.packb(person),
        cbor2.dumps(person),
        msgpack.packb([PHONE]),
        b"\xff" + PHONE.encode(),
    )
    write(cluster, topic, *((None, each) for each in values))
    digits = PHONE.encode().hex()
    hidden = base64.b64encode(PHONE.encode()).decode().rstrip("=")
    for format_ in ("auto", "text", "json", "hex", "avro", "msgpack", "cbor", "protobuf"):
        query = {"value_format": format_, "place": "oldest"}
        answers = [
            api.http.get(path_of(topic), params=query).text,
            *(
                api.http.get(path_of(topic, 0, at), params={"value_format": format_}).text
                for at in range(len(values))
            ),
            *(_export(api, topic, format=each, value_format=format_).decode() for each in ("jsonl", "csv")),
        ]
        for text in answers:
            assert "records" in text or "partition" in text
            assert PHONE not in text, format_
            assert digits not in text, format_
            assert hidden not in text, format_
        sought = {**query, "filter": f'value.phone == "{PHONE}" or "{PHONE}" in text'}
        assert api.get(path_of(topic), **sought)["records"] == [], format_
    shown = api.get(path_of(topic), place="oldest")["records"]
    assert [told(each) for each in shown[:3]] == [{"phone": "13****00", "id": 1}] * 3
    assert [each["value"]["text"] for each in shown[3:]] == ["****", "****"]
    assert "hex" not in shown[0]["value"]
    open_ = api.get(path_of(topic), filter=f'value.phone == "{PHONE}"', unmasked=True)["records"]
    assert len(open_) == 3


def test_msgpack_and_cbor_are_seen_or_chosen(api: ApiClient, cluster: LocalBroker) -> None:
    topic = new_topic(cluster, "binary")
    write(
        cluster,
        topic,
        (b"a", msgpack.packb({"n": 1, "raw": b"\xff"})),
        (b"b", cbor2.dumps({"n": 2, "raw": b"\xff"})),
        (b"c", msgpack.packb([3, b"\xff"])),
        (b"d", b"text"),
    )
    first, second, third, fourth = api.get(path_of(topic), place="oldest")["records"]
    assert (first["value"]["format"], told(first)["n"]) == ("msgpack", 1)
    assert (second["value"]["format"], told(second)["n"]) == ("cbor", 2)
    assert third["value"]["kind"] == "hex"
    assert "problem" not in third["value"]
    assert fourth["value"]["kind"] == "text"
    assert len(api.get(path_of(topic), filter="value.n >= 1")["records"]) == 2
    chosen = api.get(path_of(topic), place="oldest", value_format="msgpack")["records"]
    assert told(chosen[2]) == [3, "/w=="]
    assert "not valid MsgPack" in chosen[1]["value"]["problem"]
    texts = api.get(path_of(topic), place="oldest", value_format="text", key_format="hex")["records"]
    assert {each["value"]["kind"] for each in texts} == {"text"}
    assert texts[0]["key"] == {"kind": "hex", "text": "61", "size": 1}
    refused = api.http.get(path_of(topic), params={"value_format": "xml"})
    assert refused.status_code == 400


def test_what_a_registry_does_not_have_is_shown_as_digits_with_a_sentence(
    api: ApiClient, cluster: LocalBroker, registry: SchemaRegistry
) -> None:
    topic = new_topic(cluster, "unknown")
    orders(cluster, registry, topic, 1)
    good = registry.register("long", '"long"')
    write(
        cluster,
        topic,
        (None, struct.pack(">xI", 99_999) + b"\xff"),
        (None, struct.pack(">xI", good) + b"\xff"),
        (None, b'{"json": 1}'),
    )
    first, unknown, bad, plain = api.get(path_of(topic), place="oldest")["records"]
    assert told(first)["id"] == 0
    assert unknown["value"]["problem"] == "the schema registry does not have schema 99999"
    assert unknown["value"]["kind"] == "hex"
    assert "it does not match its Avro schema" in bad["value"]["problem"]
    assert bad["value"]["schema"]["id"] == good
    assert plain["value"]["kind"] == "json"


def test_a_registry_that_fails_costs_no_records_and_tells_no_secrets(
    cluster: LocalBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = new_topic(cluster, "failing")
    write(cluster, topic, *((None, struct.pack(">xI", number) + b"\x02") for number in range(1, 41)))
    write(cluster, topic, (None, b"text"))
    with SchemaRegistry() as failing:
        failing.misbehave = lambda request: send_body(
            request, b"", 302, Location=f"http://127.0.0.1:1/?{PASSWORD}"
        )
        settings = RegistrySettings(failing.url, "console", PASSWORD)
        server = {"bootstrap.servers": cluster.bootstrap_servers}
        made = console_settings(
            tmp_path_factory.mktemp("console"),
            cluster.bootstrap_servers,
            clusters=(ClusterSettings("main", server, registry=settings),),
        )
        with ConsoleThread(made) as running, running.client() as api:
            shown = api.get(path_of(topic), place="oldest", limit=100)["records"]
            assert [each["value"].get("problem", "")[:33] for each in shown[:-1]] == [
                "the schema registry responded wit"
            ] * 40
            assert shown[-1]["value"] == {"kind": "text", "text": "text", "size": 4}
            paths = (
                path_of(topic),
                "/session",
                "/openapi.json",
                "/clusters/main/overview",
                "/clusters/main/audit",
            )
            everything = "".join(api.http.get(each).text for each in paths)
            assert PASSWORD not in everything
            assert failing.url not in everything


def test_a_decoded_record_is_sent_again_as_its_bytes(
    api: ApiClient, cluster: LocalBroker, registry: SchemaRegistry
) -> None:
    topic, other = new_topic(cluster, "from"), new_topic(cluster, "to")
    orders(cluster, registry, topic, 1)
    api.change("POST", path_of(topic, "resend"), partition=0, offset=0, topic=other)
    (copy,) = api.get(path_of(other))["records"]
    (original,) = api.get(path_of(topic))["records"]
    assert copy["value"]["hex"] == original["value"]["hex"]


def test_a_tail_shows_decoded_records(api: ApiClient, cluster: LocalBroker, registry: SchemaRegistry) -> None:
    topic = new_topic(cluster, "tail")
    query = {"place": "tail", "filter": "value.id == 1"}
    with api.http.stream("GET", path_of(topic, "stream"), params=query) as tail:
        lines = tail.iter_lines()
        assert "event: progress" in lines  # it follows now
        orders(cluster, registry, topic, 2)
        assert "event: records" in lines
        (record,) = json.loads(next(lines).removeprefix("data: "))
    assert told(record) == {"id": 1, "price": 0.5}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_and_offsets_are_shown_as_trees(api: ApiClient, cluster: LocalBroker, protocol: Any) -> None:
    topic, group = new_topic(cluster, "read"), f"group-{uuid.uuid4().hex[:8]}"
    write(cluster, topic, (None, b"x"))
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(1.0):
            pass
        consumer.commit()
    of_group = f'key.group == "{group}" or key.group_id == "{group}"'
    found = api.get(path_of(CONSUMER_OFFSETS_TOPIC), filter=of_group, limit=1000)["records"]
    by_type: dict[str, list[Any]] = {}
    for each in found:
        by_type.setdefault(told(each, "key")["record_type"], []).append(each)
    (commit,) = api.get(
        path_of(CONSUMER_OFFSETS_TOPIC),
        filter=f'key.record_type == "OffsetCommit" and key.topic == "{topic}" and value.offset == 1',
        limit=1,
    )["records"]
    assert told(commit, "key") == {
        "record_type": "OffsetCommit",
        "group": group,
        "topic": topic,
        "partition": 0,
    }
    assert commit["value"]["format"] == "internal"
    if protocol == "classic":
        full = [told(each) for each in by_type["GroupMetadata"] if told(each)["members"]]
        member = full[0]["members"][0]
        assert member["subscription"]["topics"] == [topic]
        assert member["assignment"]["assigned_partitions"] == [{"topic": topic, "partitions": [0]}]
    else:
        members = [each for each in by_type["ConsumerGroupMemberMetadata"] if each["value"]["kind"] == "json"]
        assert told(members[0])["subscribed_topic_names"] == [topic]
        assert {"ConsumerGroupMetadata", "ConsumerGroupTargetAssignmentMember"} <= by_type.keys()
        assert any(each["value"]["kind"] == "null" for each in by_type["ConsumerGroupMemberMetadata"])


def test_transactions_are_shown_as_trees(api: ApiClient, cluster: LocalBroker) -> None:
    topic, name = new_topic(cluster, "sent"), f"txn-{uuid.uuid4().hex[:8]}"
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x")
        producer.commit_transaction()
    found = api.get(
        path_of(TRANSACTION_STATE_TOPIC), filter=f'key.transactional_id == "{name}"', place="oldest"
    )["records"]
    states = [told(each)["transaction_status"] for each in found]
    assert states[0] == "Empty"
    assert "Ongoing" in states
    ongoing = told(found[states.index("Ongoing")])
    assert ongoing["transaction_partitions"] == [{"topic": topic, "partition_ids": [0]}]


def test_internal_records_of_unknown_types_are_digits_with_a_sentence() -> None:
    from tidelog.console.records.decoding.internal_topics import decode_internal
    from tidelog.console.records.decoding.problem import DecodeProblem

    for key, value in ((b"\x7f\xff", None), (b"\x00\x01", None), (b"\x00\x02\x00\x01g", b"\x00\x63")):
        with pytest.raises(DecodeProblem, match="record"):
            decode_internal(
                CONSUMER_OFFSETS_TOPIC, key if value is None else value, None if value is None else key
            )
