"""The choice of formats on the messages page, in a real browser."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from playwright.sync_api import Page, expect
from tests.rigs.console_browser import needs_chromium
from tests.rigs.console_thread import ConsoleThread, console_settings
from tests.rigs.schema_registry import SchemaRegistry

from tidelog.console.records.decoding import registry as registry_module
from tidelog.console.settings import ClusterSettings, RegistrySettings
from tidelog.testing import broker

pytestmark = needs_chromium
LONG = (1 << 62) + 1
HOSTILE = "<img src=x onerror='document.body.dataset.owned = 1'>"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that run tests may be busy."""
    monkeypatch.setattr(registry_module, "REQUEST_S", 60.0)
    monkeypatch.setattr(registry_module, "SCHEMA_S", 120.0)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ConsoleThread]:
    """A topic with four values: Avro, a schema that is not there, a list in MsgPack, text."""
    with SchemaRegistry() as registry, broker(topics={"mixed": 1}) as cluster:
        schema = (
            '{"type": "record", "name": "Order", "fields": [{"name": "note", "type": "string"}, '
            '{"name": "id", "type": "long"}]}'
        )
        avro = AvroSerializer(SchemaRegistryClient({"url": registry.url}), schema)
        producer = LibrdkafkaProducer({"bootstrap.servers": cluster.bootstrap_servers})
        for value in (
            avro({"note": HOSTILE, "id": LONG}, SerializationContext("mixed", MessageField.VALUE)),
            struct.pack(">xI", 999) + b"\xff",
            msgpack.packb(["packed", b"\xff"]),
            b"plain words",
        ):
            producer.produce("mixed", value, b"k")
        assert producer.flush(60) == 0
        server = {"bootstrap.servers": cluster.bootstrap_servers}
        settings = console_settings(
            tmp_path,
            cluster.bootstrap_servers,
            clusters=(ClusterSettings("main", server, registry=RegistrySettings(registry.url)),),
        )
        with ConsoleThread(settings) as running:
            yield running


def test_formats_are_seen_and_chosen(page: Page, console: ConsoleThread) -> None:
    page.goto(f"{console.url}/static/index.html#/main/topics/mixed")
    page.get_by_label("Start position").select_option("oldest")
    rows = page.locator(".records tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0)).to_contain_text('{"note":')
    expect(rows.nth(1)).to_contain_text("the schema registry does not have schema 999")
    expect(rows.nth(2)).to_contain_text("0x92")
    rows.nth(0).click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text("Avro · schema 1 · mixed-value v1 · Order")
    expect(detail.locator(".json .k").first).to_have_text("note")
    expect(detail.get_by_text(HOSTILE)).to_be_visible()
    expect(detail.locator(".json .n")).to_have_text(str(LONG))
    expect(detail.get_by_role("button", name="Avro")).to_have_attribute("aria-pressed", "true")
    detail.get_by_role("button", name="Hex").first.click()
    expect(detail.locator(".value pre").first).to_contain_text("00 00 00 00 01")
    rows.nth(2).click()  # the detail of the first is a row, too
    expect(page.locator("tr.detail .problem")).to_have_text("the schema registry does not have schema 999")

    page.get_by_label("Value format").select_option("msgpack")
    expect(rows).to_have_count(4)
    expect(rows.nth(2)).to_contain_text('["packed","/w=="]')
    expect(rows.nth(3)).to_contain_text("it is not valid MsgPack")
    page.get_by_label("Key format").select_option("hex")
    expect(rows.nth(0)).to_contain_text("0x6b")
    page.get_by_label("Value format").select_option("text")
    expect(rows.nth(3)).to_contain_text("plain words")
    assert page.evaluate("document.body.dataset.owned") is None

    page.evaluate("localStorage.setItem('language', 'zh')")
    page.reload()
    expect(page.get_by_label("值的格式")).to_contain_text("值：自动")
