"""Quotas by Kafka's own tool, kafka-configs.sh, of either generation, and seen by it and by us alike."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from foreign.broker_process import BrokerProcess

import tidelog.client as ours
from tidelog.client.admin.quotas import Entity

CONFIGS = "kafka.admin.ConfigCommand"
Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("arguments", "entity", "quotas"),
    [
        (
            ("--entity-type", "users", "--entity-name", "tool user"),
            {"user": "tool user"},
            {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0, "request_percentage": 200.0},
        ),
        (
            ("--entity-type", "clients", "--entity-name", "tool-client"),
            {"client-id": "tool-client"},
            {"producer_byte_rate": 1024.0, "controller_mutation_rate": 2.5},
        ),
        (
            (
                "--entity-type",
                "users",
                "--entity-name",
                "tool",
                "--entity-type",
                "clients",
                "--entity-default",
            ),
            {"user": "tool", "client-id": None},
            {"consumer_byte_rate": 1e9},
        ),
        (
            ("--entity-type", "ips", "--entity-name", "192.0.2.50"),
            {"ip": "192.0.2.50"},
            {"connection_creation_rate": 5.0},
        ),
        (("--entity-type", "ips", "--entity-default"), {"ip": None}, {"connection_creation_rate": 1e6}),
    ],
    ids=["user", "client", "user-with-default-client", "ip", "default-ip"],
)
def test_kafka_configs_sets_describes_and_removes_quotas(
    kafka_tool: Tool,
    broker: BrokerProcess,
    arguments: tuple[str, ...],
    entity: Entity,
    quotas: dict[str, float],
) -> None:
    def run(*more: str) -> str:
        done = kafka_tool(CONFIGS, "--bootstrap-server", broker.address, *more, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("--alter", "--add-config", ",".join(f"{key}={value:.15g}" for key, value in quotas.items()))
    with ours.Admin(bootstrap_servers=broker.address) as admin:
        (found,) = admin.describe_client_quotas(dict(entity), strict=True)
        assert found.quotas == quotas
        shown = run("--describe")
        assert all(f"{key}=" in shown for key in quotas), shown
        run("--alter", "--delete-config", ",".join(quotas))
        assert admin.describe_client_quotas(dict(entity), strict=True) == []


def test_kafka_configs_is_refused_what_cannot_be(kafka_tool: Tool, broker: BrokerProcess) -> None:
    for quota in ("producer_byte_rate=-1", "producer_byte_rate=0", "no_such_quota=5"):
        done = kafka_tool(
            CONFIGS,
            "--bootstrap-server",
            broker.address,
            "--alter",
            "--add-config",
            quota,
            "--entity-type",
            "users",
            "--entity-name",
            "tool",
        )
        assert done.returncode != 0, done.stdout
