"""What holds on a broker from its start on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidelog.broker.composition import standalone
from tidelog.config.broker_config import BrokerConfig


def test_dynamic_options_of_the_log_directories_outlive_a_restart(tmp_path: Path) -> None:
    wanted = {"producer.id.expiration.ms": "1234567", "log.cleaner.io.max.bytes.per.second": "54321"}

    async def start(change: dict[str, str]) -> tuple[int, float | None]:
        broker = standalone(
            BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")})
        )
        await broker.start()
        if change:
            await broker.dynamic_configs.change_broker({}, lambda _: change, every_broker=True)
        options = broker.log_dirs.options
        await broker.shut_down()
        return options.producer_expiration_ms, options.cleaner.max_bytes_per_second

    asyncio.run(start(wanted))
    assert asyncio.run(start({})) == (1234567, 54321)


def test_a_limit_of_a_host_that_cannot_be_resolved_keeps_neither_other_limits_nor_a_start_away(
    tmp_path: Path,
) -> None:
    wanted = {"max.connections.per.ip.overrides": "a..b:3,10.0.0.9:4", "max.connections": "77"}

    async def start(change: dict[str, str]) -> tuple[int, dict[str, int]]:
        broker = standalone(
            BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")})
        )
        await broker.start()
        if change:
            await broker.dynamic_configs.change_broker({}, lambda _: change, every_broker=True)
        quotas = broker.network.quotas
        await broker.shut_down()
        return quotas.max_connections, quotas.per_ip_overrides

    assert asyncio.run(start(wanted)) == (77, {"10.0.0.9": 4})
    assert asyncio.run(start({})) == (77, {"10.0.0.9": 4})
