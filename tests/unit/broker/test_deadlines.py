"""Who waits is told when its time is up, and not after it has ended its wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation.virtual_loop import VirtualLoop

from tidelog.broker.deadlines import Deadlines
