"""Keys that are asked for at several brokers: what a question leaves behind that is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tidelog.client._network.unanswered import Unanswered


def test_a_question_that_is_cancelled_before_it_began_is_never_asked() -> None:
    asked: list[Coroutine[Any, Any, list[int]]] = []

    async def question() -> list[int]:
        return [1]

    def ask() -> Coroutine[Any, Any, list[int]]:
        asked.append(question())
        return asked[-1]

    async def main() -> None:
        answering = asyncio.ensure_future(Unanswered[str]().answer(ask, ["a"]))
        answering.cancel()
        await asyncio.wait([answering])
        assert answering.cancelled()
        assert asked == []
        assert await Unanswered[str]().answer(ask, ["a"]) == [1]

    asyncio.run(main())
