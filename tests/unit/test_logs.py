"""The broker's log: one event is one line, in both formats."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tidelog import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


HOSTILE = "CN=\u202egro.elpmaxe\u2066,O=\u200b\ufeff\x7f\x9b\u2028\ud800\U000e0041 ünal 王 😀"


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_no_character_from_a_peer_changes_how_a_line_looks(stream: io.StringIO, log_format: str) -> None:
    logs.set_up(log_format, stream=stream)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("tests").exception("No TLS with %s", HOSTILE)
    text = stream.getvalue()
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("ünal 王 😀") == 2, "letters stay as they are"
    assert text.count("\\u202egro") == 2
    if log_format == "json":
        assert json.loads(text)["message"] == f"No TLS with {HOSTILE}"


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_what_a_client_sends_cannot_begin_a_line_of_its_own(stream: io.StringIO, log_format: str) -> None:
    logs.set_up(log_format, stream=stream)
    forged = "topic\n2026-11-15 10:20:30,123 ERROR forged\r\x1b[2J\x00end"
    logging.getLogger("tests").warning("No such topic as %s", forged)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert text[:-1].isprintable()


def test_the_json_format_keeps_what_a_client_sent(stream: io.StringIO) -> None:
    logs.set_up("json", stream=stream)
    logging.getLogger("tests").warning("No such topic as %s", "a\nb")
    assert json.loads(stream.getvalue())["message"] == "No such topic as a\nb"


def test_an_exception_that_is_logged_on_purpose_comes_with_its_traceback(stream: io.StringIO) -> None:
    logs.set_up("text", stream=stream)
    try:
        raise ValueError("here")
    except ValueError:
        logging.getLogger("tests").exception("a bug")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("a bug (tests)")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: here"
