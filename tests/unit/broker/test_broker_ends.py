"""When a broker cannot go on, or is told to stop before it serves: it says so and closes everything."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tidelog.broker.app import Broker, StartGivenUp
from tidelog.broker.composition import standalone
from tidelog.broker.state import BrokerState
from tidelog.controller.topics import NewTopic
from tidelog.metadata.broker_config import BrokerConfig

CLEAN_MARK = ".kafka_cleanshutdown"


def broker_in(*paths: Path) -> Broker:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": ",".join(map(str, paths))}
    return standalone(BrokerConfig(config))


def test_losing_the_last_directory_to_work_in_the_background_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        broker = broker_in(first, second)
        reasons: list[str] = []
        broker.on_fatal = reasons.append
        await broker.start()
        broker.log_dirs.mark_offline(first, OSError("a checkpoint cannot be written"))
        assert not reasons
        broker.log_dirs.mark_offline(second, OSError("nor here"))
        (reason,) = reasons
        assert f"{first}: a checkpoint cannot be written" in reason
        assert f"{second}: nor here" in reason
        await broker.shut_down()

    asyncio.run(scenario())


def test_a_start_that_is_given_up_while_loading_closes_what_it_opened(tmp_path: Path) -> None:
    async def fill() -> None:
        broker = broker_in(tmp_path / "data")
        await broker.start()
        await broker.controller.create_topics([NewTopic("t", 3)])
        await broker.shut_down()

    async def give_up() -> None:
        broker = broker_in(tmp_path / "data")
        broker.give_up_start()
        with pytest.raises(StartGivenUp):
            await broker.start()
        assert broker.state is BrokerState.NOT_RUNNING

    async def serve() -> None:
        broker = broker_in(tmp_path / "data")
        await broker.start()
        assert len(broker.partitions) == 3
        await broker.shut_down()

    asyncio.run(fill())
    asyncio.run(give_up())
    assert not (tmp_path / "data" / CLEAN_MARK).exists(), (
        "not every log was loaded, so nobody can vouch for them"
    )
    asyncio.run(serve())
    assert (tmp_path / "data" / CLEAN_MARK).exists()
