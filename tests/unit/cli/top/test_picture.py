"""The live picture of `tidelog top`, on terminals of several sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console
from tests.unit.cli.top.samples import NODES, sample

from tidelog.cli.top.loads import load_between
from tidelog.cli.top.picture import Frame, draw


def shown(frame: Frame, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(draw(frame, width, height))
    return capture.get().splitlines()


@pytest.fixture
def frame() -> Frame:
    frame = Frame()
    frame.add(load_between(sample(10.0, (1000, 0), committed=900), sample(12.0, (1100, 300), committed=950)))
    return frame


@pytest.mark.parametrize("width", [20, 34, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [4, 8, 10, 24, 50])
def test_it_fits_the_terminal_and_has_no_broken_lines(frame: Frame, width: int, height: int) -> None:
    lines = shown(frame, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[0].startswith(" TIDELOG ")
    assert lines[-1].startswith("Ctrl-C ends it"[:width])


def test_it_shows_rates_topics_and_lag(frame: Frame) -> None:
    text = "\n".join(shown(frame, 120, 30))
    assert "200 records/s" in text
    assert "lag 150" in text
    assert "two:9092" in text
    assert "1: 75%" in text
    assert "+25" in text


def test_narrow_terminals_keep_names_and_rates(frame: Frame) -> None:
    names = next(line for line in shown(frame, 34, 30) if line.startswith("topic "))
    assert "records/s" in names
    assert "busiest" not in names


@pytest.mark.parametrize("height", [16, 24])
def test_many_topics_give_way_to_groups(frame: Frame, height: int) -> None:
    assert frame.load is not None
    frame.load = replace(frame.load, topics=frame.load.topics * 40)
    lines = shown(frame, 80, height)
    assert any(line.startswith("Topics") and "of 80" in line for line in lines)
    assert any(line.startswith("billing") for line in lines)


def test_a_look_that_takes_long_is_told_of_before_it_ends(frame: Frame) -> None:
    frame.age_s, frame.due_s = 5.0, 5.0
    assert "no news" not in "\n".join(shown(frame, 140, 30))
    frame.age_s = 6.0
    assert "no data for 6 s: not all brokers have responded yet" in shown(frame, 140, 30)[1]


def test_trouble_is_told_in_a_line_below_the_first() -> None:
    frame = Frame()
    frame.add(load_between(sample(1.0, (0, 0)), sample(2.0, (0, 0), nodes=NODES[:1])))
    frame.trouble, frame.age_s = "cannot reach one:9092", 7.4
    told = shown(frame, 140, 30)[1]
    assert "no data for 7 s: cannot reach one:9092" in told
    assert "broker 2 is down" in told
    assert "1 partition offline" in told
