"""`tidelog perf` reads as nobody: the group of a properties file is that of the application it is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.cli.perf import consume, latency

Tidelog = Callable[..., tuple[int, str, str]]
Options = dict[str, object]


@pytest.fixture
def application_file(tmp_path: Path) -> Path:
    file = tmp_path / "billing.properties"
    file.write_text(
        "bootstrap.servers=127.0.0.1:1\ngroup.id=billing\nenable.auto.commit=true\nmax.partition.fetch.bytes=7\n"
        "auto.offset.reset=none\n"
    )
    return file


@pytest.fixture
def consuming(
    tidelog: Tidelog, application_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Options]:
    """The options of the consumer that `perf consume` would run."""
    used: list[Options] = []

    async def run(self: consume.ConsumeRun, options: Options) -> int:
        used.append(options)
        return 0

    monkeypatch.setattr(consume.ConsumeRun, "run", run)

    def options_of(*arguments: str) -> Options:
        done = tidelog("perf", "consume", "orders", "--command-config", application_file, *arguments)
        assert done == (0, "", "")
        return used.pop()

    return options_of


def test_without_a_group_it_has_one_of_its_own_and_commits_nothing(consuming: Callable[..., Options]) -> None:
    options = consuming()
    assert str(options["group.id"]).startswith("perf-consumer-")
    assert options["enable.auto.commit"] is False


def test_properties_of_the_command_line_may_say_otherwise(consuming: Callable[..., Options]) -> None:
    given = ("group.id=mine", "enable.auto.commit=true")
    options = consuming(*(word for each in given for word in ("--consumer-property", each)))
    assert (options["group.id"], options["enable.auto.commit"]) == ("mine", "true")


def test_a_group_that_is_named_commits(consuming: Callable[..., Options]) -> None:
    options = consuming("--group", "mine")
    assert (options["group.id"], options["enable.auto.commit"]) == ("mine", True)


def test_options_of_the_command_line_win_over_the_file(consuming: Callable[..., Options]) -> None:
    names = ("max.partition.fetch.bytes", "auto.offset.reset")
    options = consuming()
    assert [options[name] for name in names] == ["7", "none"]
    options = consuming("--fetch-size", "5000", "--from-latest")
    assert [options[name] for name in names] == [5000, "latest"]


def test_latency_has_no_group(
    tidelog: Tidelog, application_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Options] = []

    async def run(
        topic: str, count: int, size: int, producing: Options, consuming: Options, *_: object, **__: object
    ) -> bool:
        used.append(consuming)
        return False

    monkeypatch.setattr(latency, "_run", run)
    assert tidelog("perf", "latency", "orders", "--command-config", application_file) == (0, "", "")
    assert "group.id" not in used[0]
    assert used[0]["enable.auto.commit"] is False
