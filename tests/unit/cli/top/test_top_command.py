from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.cli.top.samples import sample

from tidelog.cli.top.command import Watch
from tidelog.cli.top.loads import load_between
from tidelog.cli.top.picture import Frame
from tidelog.client.errors import BrokerUnreachableError


def test_whatever_goes_wrong_is_said_in_the_picture_which_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    load = load_between(sample(10.0, (0, 0)), sample(12.0, (10, 10)))
    outcomes: list[Any] = [BrokerUnreachableError("nobody is there"), ValueError("oh"), load, None]
    troubles: list[str] = []
    frame = Frame()

    async def next_load(self: Watch, admin: object) -> object:
        troubles.append(frame.trouble)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def main() -> None:
        monkeypatch.setattr(Watch, "_next_load", next_load)
        admin: Any = None
        await Watch({}, 1.0, internal=False)._look(admin, frame)

    asyncio.run(main())
    before, unreachable, bug, after = troubles
    assert (before, unreachable, after) == ("", "nobody is there", "")
    assert "this is a bug in tidelog (ValueError: oh)" in bug
    assert frame.load is load
