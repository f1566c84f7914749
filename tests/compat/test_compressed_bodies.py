"""Batches whose compressed body is several frames: foreign clients read all that the broker stores."""

from __future__ import annotations

import pytest
from foreign.broker_process import BrokerProcess
from tests.compat.driver import Driver, b64
from tests.rigs.framed_batches import COUNT, send_framed_batches, ten_records
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic

# KafkaJS has no lz4 of its own. lz4js, which its driver adds, returns zeros for a frame with checksums of
# blocks, also when it is given the body alone; no producer writes such frames.
NOT_READ = {"kafkajs": ["lz4-checksums"]}


@pytest.mark.needs("consume")
def test_every_stored_form_is_read_to_its_last_record(
    broker: BrokerProcess, driver: Driver, topic: str
) -> None:
    if broker.label != "tidelog":
        pytest.skip(
            "Apache Kafka stores forms that stop consumers: `strict-records` in docs/reference/deviations.md"
        )
    with RawClient("127.0.0.1", broker.port) as client:
        count = send_framed_batches(RawTopic(client, topic), without=NOT_READ.get(driver.client.name, ()))
    assert count > COUNT
    read = driver("consume", topic=topic, partition=0, offset="earliest", count=count)
    assert [each["offset"] for each in read] == list(range(count))
    values = [b64(each.value) for each in ten_records()]
    assert [each["value"] for each in read] == values * (count // COUNT)
