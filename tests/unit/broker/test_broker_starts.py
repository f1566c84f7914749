"""What holds on a broker from its start on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidelog.broker.composition import standalone
from tidelog.metadata.broker_config import BrokerConfig


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
