"""Methods of other libraries, called on our clients: they work, or the error names ours."""

from __future__ import annotations

import re
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
from confluent_kafka.aio import AIOConsumer, AIOProducer

import tidelog
from tidelog.client import _foreign_methods as foreign_methods
from tidelog.client._foreign_methods import Meaning
from tidelog.client.producer.quick_send import RecordFuture
from tidelog.client.producer.record_future import DeferredRecord

THEIRS: dict[str, list[type]] = {
    "producer": [
        kafka.KafkaProducer,
        aiokafka.AIOKafkaProducer,
        confluent_kafka.Producer,
        confluent_kafka.SerializingProducer,
        AIOProducer,
    ],
    "consumer": [
        kafka.KafkaConsumer,
        aiokafka.AIOKafkaConsumer,
        confluent_kafka.Consumer,
        confluent_kafka.DeserializingConsumer,
        AIOConsumer,
    ],
    "admin": [
        kafka.KafkaAdminClient,
        aiokafka.admin.AIOKafkaAdminClient,
        confluent_kafka.admin.AdminClient,
    ],
}
OURS: list[tuple[type, str, dict[str, Meaning]]] = [
    (tidelog.Producer, "producer", foreign_methods.PRODUCER),
    (tidelog.AsyncProducer, "producer", foreign_methods.ASYNC_PRODUCER),
    (tidelog.Consumer, "consumer", foreign_methods.CONSUMER),
    (tidelog.AsyncConsumer, "consumer", foreign_methods.ASYNC_CONSUMER),
    (tidelog.Admin, "admin", foreign_methods.ADMIN),
    (tidelog.AsyncAdmin, "admin", foreign_methods.ADMIN),
]
FUTURES: list[type] = [RecordFuture, DeferredRecord]


@pytest.mark.parametrize(("ours", "kind", "meanings"), OURS, ids=[each[0].__name__ for each in OURS])
def test_every_public_method_of_the_libraries_is_ours_or_explained(
    ours: type, kind: str, meanings: dict[str, Meaning]
) -> None:
    theirs = {
        name
        for each in THEIRS[kind]
        for name in dir(each)
        if not name.startswith("_") and callable(getattr(each, name))
    }
    assert theirs
    assert {name for name in theirs if not hasattr(ours, name)} <= set(meanings)


@pytest.mark.parametrize(
    ("ours", "meanings"),
    [*((each[0], each[2]) for each in OURS), *((each, foreign_methods.FUTURE) for each in FUTURES)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_an_error_names_exists_and_nothing_explained_is_a_method_of_ours(
    ours: type, meanings: dict[str, Meaning]
) -> None:
    for name, meaning in meanings.items():
        assert name not in vars(ours), name
        for owner, method in re.findall(r"`(?:(\w+)\.)?(\w+)\(", meaning) if isinstance(meaning, str) else ():
            assert hasattr(getattr(tidelog, owner) if owner else ours, method), (name, method)


@pytest.mark.parametrize("ours", [tidelog.Producer, tidelog.AsyncProducer])
def test_an_unexplained_name_is_an_ordinary_attribute_error(ours: Any) -> None:
    client = ours.__new__(ours)
    with pytest.raises(AttributeError, match=f"'{ours.__name__}' object has no attribute 'sned'") as caught:
        client.sned("orders", b"tea")
    assert (caught.value.name, caught.value.obj) == ("sned", client)
    assert not hasattr(client, "__fspath__")
    assert not hasattr(client, "purge")


def test_the_future_of_a_record_knows_kafka_pythons_names() -> None:
    future = RecordFuture(None, 0)
    with pytest.raises(AttributeError, match=r"RecordFuture has no method add_callback: call `add_done_call"):
        future.add_callback(print)
    with pytest.raises(AttributeError, match="'RecordFuture' object has no attribute 'reslut'"):
        future.reslut()
    assert callable(future.get)
