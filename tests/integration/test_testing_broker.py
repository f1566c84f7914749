"""``tidelog.testing``: a broker for a ``with`` block, for ``async with``, and as fixtures of pytest."""

from __future__ import annotations

import asyncio
import importlib.metadata
import socket
from pathlib import Path

import pytest

from tidelog import (
    AsyncConsumer,
    AsyncProducer,
    BrokerUnreachableError,
    ErrorCode,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from tidelog.testing import LocalBroker, async_broker, broker

pytest_plugins = ["pytester"]

WAIT_S = 30.0
PLUGIN = "tidelog.testing.pytest_plugin"


def is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=WAIT_S).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("in_process", [False, True])
def test_a_broker_lives_as_long_as_its_block_and_leaves_nothing(in_process: bool) -> None:
    with broker(topics={"orders": 3}, in_process=in_process) as running:
        assert is_listening(running.bootstrap_servers)
        assert [(each.name, len(each.partitions)) for each in running.admin.list_topics()] == [("orders", 3)]
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            assert producer.send("orders", b"one espresso", partition=2).result(WAIT_S).offset == 0
        directory = running.data_dir
        assert (directory / "orders-2").is_dir()
    assert not is_listening(running.bootstrap_servers)
    assert not directory.parent.exists()


def test_the_broker_ends_also_when_the_block_fails() -> None:
    def fail() -> LocalBroker:
        with broker() as running:
            seen.append(running)
            raise LookupError

    seen: list[LocalBroker] = []
    with pytest.raises(LookupError):
        fail()
    assert not is_listening(seen[0].bootstrap_servers)


def test_a_topic_that_cannot_be_created_is_raised_and_the_broker_ends(tmp_path: Path) -> None:
    with pytest.raises(KafkaError) as caught, broker(topics=["a b"], data_dir=tmp_path / "data"):
        pytest.fail("the block must not begin")
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with broker(data_dir=tmp_path / "data") as again:
        assert again.admin.list_topics() == []


def test_an_option_that_the_broker_refuses_is_told_in_its_words() -> None:
    with pytest.raises(RuntimeError, match=r"num\.partitions"), broker(options={"num.partitions": "few"}):
        pytest.fail("the block must not begin")


def test_options_reach_the_broker() -> None:
    with broker(options={"num.partitions": 5, "auto.create.topics.enable": False}) as running:
        topic = running.create_topic("five", partitions=-1)
        assert len(running.admin.describe_topics([topic])[topic].partitions) == 5


def test_data_in_a_directory_of_ones_own_survives(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path / "data", topics=[NewTopic("kept", 2)]) as running:
        assert running.data_dir == tmp_path / "data"
    with broker(data_dir=tmp_path / "data") as running:
        assert [each.name for each in running.admin.list_topics()] == ["kept"]


def test_a_killed_broker_comes_back_with_its_records() -> None:
    with broker(topics=["orders"]) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            producer.send("orders", b"one espresso").result(WAIT_S)
        address = running.bootstrap_servers
        running.kill()
        assert not is_listening(address)
        running.restart()
        assert running.bootstrap_servers == address
        place = TopicPartition("orders", 0)
        assert running.admin.list_offsets({place: -1})[place].offset == 1
        assert "ready" in running.log


def test_a_broker_inside_the_process_cannot_be_killed() -> None:
    with broker(in_process=True) as running, pytest.raises(RuntimeError, match="in_process"):
        running.kill()


def test_topics_get_names_that_are_not_taken() -> None:
    with broker(in_process=True) as running:
        names = [running.create_topic(), running.create_topic(configs={"retention.ms": "1000"})]
        assert sorted(names) == [each.name for each in running.admin.list_topics()]


def test_a_program_on_asyncio_has_a_broker_of_its_own() -> None:
    async def main() -> str:
        async with async_broker(topics=["orders"]) as running:
            servers = running.bootstrap_servers
            async with AsyncProducer(bootstrap_servers=servers) as producer:
                await producer.send("orders", b"one espresso")
            async with AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("orders", 0)])
                (record,) = await consumer.poll(WAIT_S)
                assert record.value == b"one espresso"
        return servers

    assert not is_listening(asyncio.run(main()))


def test_a_start_that_is_cancelled_leaves_no_broker(tmp_path: Path) -> None:
    async def main() -> None:
        entering = asyncio.ensure_future(async_broker(data_dir=tmp_path / "data").__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(main())
    # The directory is locked by whoever uses it: it is free again.
    with broker(data_dir=tmp_path / "data") as running:
        assert is_listening(running.bootstrap_servers)


def test_nobody_answers_after_the_end() -> None:
    with broker() as running:
        servers = running.bootstrap_servers
    from tidelog import Admin

    options = {"request.timeout.ms": 100, "default.api.timeout.ms": 200}
    with Admin(options, bootstrap_servers=servers) as admin, pytest.raises(BrokerUnreachableError):
        admin.describe_cluster()


# -- the pytest plugin


def run_pytest(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """pytest as a user runs it; the plugin is named where this installation is older than its entry point."""
    known = {each.value for each in importlib.metadata.entry_points(group="pytest11")}
    named = () if PLUGIN in known else ("-p", PLUGIN)
    return pytester.runpytest_subprocess(*named, "-p", "no:cacheprovider", *arguments, timeout=120)


def test_the_fixtures_give_one_broker_and_a_fresh_topic_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def tidelog_broker_options():
            return {"num.partitions": 3}
        """
    )
    pytester.makepyfile(
        """
        import pytest
        from tidelog import Consumer, Producer, TopicPartition

        seen = []

        @pytest.mark.parametrize("word", ["ebb", "flow / flood"])
        def test_records_go_through(tidelog_broker, tidelog_topic, word):
            servers = tidelog_broker.bootstrap_servers
            with Producer(bootstrap_servers=servers) as producer:
                assert producer.send(tidelog_topic, word.encode()).result(30).offset == 0
            with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition(tidelog_topic, 0)])
                assert [record.value for record in consumer.poll(30)] == [word.encode()]
            seen.append((servers, tidelog_topic))

        @pytest.mark.tidelog_topic(partitions=2, configs={"retention.ms": "1000"})
        def test_the_topic_is_made_as_the_marker_says(tidelog_broker, tidelog_topic):
            described = tidelog_broker.admin.describe_topics([tidelog_topic])[tidelog_topic]
            assert len(described.partitions) == 2
            seen.append((tidelog_broker.bootstrap_servers, tidelog_topic))

        def test_the_broker_has_the_options(tidelog_broker):
            topic = tidelog_broker.create_topic(partitions=-1)
            assert len(tidelog_broker.admin.describe_topics([topic])[topic].partitions) == 3

        def test_one_broker_and_three_topics():
            assert len({servers for servers, _ in seen}) == 1
            assert len({topic for _, topic in seen}) == 3
        """
    )
    run_pytest(pytester, "--strict-markers").assert_outcomes(passed=5)


def test_tests_that_ask_for_no_broker_start_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert "tidelog.client" not in sys.modules
            assert "tidelog.broker" not in sys.modules
        """
    )
    run_pytest(pytester).assert_outcomes(passed=1)


def test_a_project_that_turns_warnings_into_errors_is_not_disturbed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    # In a process of its own, with the plugin found by its entry point as in a user's project.
    result = pytester.runpytest_subprocess("-W", "error")
    result.assert_outcomes(passed=1)
    assert result.stderr.lines == []


def test_the_fixtures_are_listed_with_their_purpose(pytester: pytest.Pytester) -> None:
    result = run_pytest(pytester, "--fixtures")
    result.stdout.fnmatch_lines_random(["tidelog_broker*session*", "tidelog_topic*", "*fresh topic*"])
