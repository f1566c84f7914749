"""Shows the view while the run goes on: the dashboard on a terminal, plain lines anywhere else."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from tidelog_rewards.demo import dashboard
from tidelog_rewards.demo.plain import PlainLines
from tidelog_rewards.demo.view import View

LINES_S = 0.25
DRAWN_S = 0.5
DRAWN_WHILE_STARTING_S = 1.0
"""A picture costs some 20 ms of CPU, which Spark could use just then; figures change once a second."""


class Display:
    """``async with Display(view, console):`` shows the view from the first moment on."""

    def __init__(self, view: View, console: Console) -> None:
        self._view = view
        self._console = console
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, screen=True, auto_refresh=False)
        self._lines = PlainLines(view, lambda line: console.print(line, soft_wrap=True, highlight=False))
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        self._update()
        self._task = asyncio.create_task(self._go_on(), name="display")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._live is None:
            self._update()
        else:
            self._live.stop()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s())
            self._update()

    def _interval_s(self) -> float:
        if self._live is None:
            return LINES_S
        return DRAWN_WHILE_STARTING_S if self._view.live_after_s is None else DRAWN_S

    def _update(self) -> None:
        if self._live is None:
            self._lines.update()
            return
        width, height = self._console.size
        self._live.update(dashboard.render(self._view, width, height), refresh=True)
