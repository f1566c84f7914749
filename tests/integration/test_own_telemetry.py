"""Our clients push their figures to a broker that receives them (KIP-714), where somebody asks for them."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from tests.rigs.waiting import wait_until

import tidelog
from tidelog.client.resources import AlterConfigOp, ConfigResource, ResourceType
from tidelog.ids import Uuid
from tidelog.testing.broker_process import BrokerProcess

WAIT_S = 60.0


@pytest.fixture(scope="module")
def receiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("telemetry") / "data"
    with BrokerProcess(directory, options={"metrics.listeners": "127.0.0.1:0"}) as process:
        yield process


def page(process: BrokerProcess) -> str:
    found = re.search(r"Metrics are at (http://\S+/metrics)", process.log)
    assert found is not None
    with urllib.request.urlopen(found[1], timeout=10) as answer:
        return str(answer.read().decode())


def told(process: BrokerProcess, line: str) -> bool:
    return re.search(line, page(process)) is not None


def subscribe(bootstrap: str, name: str, changes: dict[str, str]) -> None:
    with tidelog.Admin(bootstrap_servers=bootstrap, client_id="admin-of-ours") as admin:
        wanted = ConfigResource(ResourceType.CLIENT_METRICS, name)
        for result in admin.alter_configs({wanted: [AlterConfigOp(*each) for each in changes.items()]}):
            result.raise_for_error()


def test_a_client_of_which_nothing_is_wanted_does_not_load_what_pushes(receiving: BrokerProcess) -> None:
    subscribe(receiving.bootstrap, "others", {"metrics": "*", "match": "client_id=somebody-else"})
    program = (
        "import sys, tidelog\n"
        f"with tidelog.Producer(bootstrap_servers={receiving.bootstrap!r}) as producer:\n"
        "    producer.send('quiet', b'').result(60)\n"
        "    print(len(producer.client_instance_id()))\n"
        "print([name for name in sys.modules if 'otlp' in name or 'telemetry_payload' in name])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert done.stdout == "16\n[]\n"


def test_our_clients_push_what_a_subscription_asks_for(receiving: BrokerProcess) -> None:
    bootstrap = receiving.bootstrap
    changes = {
        "interval.ms": "100",
        "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.,org.apache.kafka.admin.",
        "match": "client_id=.*-of-ours,client_software_name=tidelog",
    }
    subscribe(bootstrap, "ours", changes)
    with (
        tidelog.Producer(bootstrap_servers=bootstrap, client_id="producer-of-ours") as producer,
        tidelog.Consumer(
            bootstrap_servers=bootstrap, client_id="consumer-of-ours", auto_offset_reset="earliest"
        ) as consumer,
    ):
        for _ in range(3):
            producer.send("pushed", b"tea").result(WAIT_S)
        consumer.assign([tidelog.TopicPartition("pushed", 0)])
        read = 0
        while read < 3:
            read += len(consumer.poll(WAIT_S))
        for client, name in (
            ("producer", "producer_topic_record_send_total"),
            ("consumer", "consumer_fetch_manager_records_lead"),
        ):
            line = (
                rf'kafka_client_{name}\{{client_id="{client}-of-ours",[^}}]*topic="pushed"[^}}]*}} 3(\.0)?\n'
            )
            wait_until(functools.partial(told, receiving, line), f"the {client} has pushed nothing")
        ids: set[Uuid] = {producer.client_instance_id(), consumer.client_instance_id()}
        assert len(ids) == 2
        consumer.poll(0)
