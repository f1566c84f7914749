"""``tidelog top``: a live view of a cluster, or one picture of it.

Samples are taken in the background; a cluster that does not answer keeps the last picture, which says so.
Works with any Kafka: rates are differences of offsets, of commits and of sizes on disk. Which requests take
long and whom quotas hold back is told by brokers of Tidelog that have a metrics listener.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.broker_pages import BrokerPages
from tidelog.cli.connect import client_options
from tidelog.cli.failure import sentence
from tidelog.cli.output import bytes_text, counted, examples, is_terminal, print_json, print_table, remark
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, Metrics, grouped
from tidelog.cli.top.loads import ClusterLoad, load_between, visible
from tidelog.cli.top.sample import Sample, take_sample
from tidelog.cli.top.sections import kept_columns, sections
from tidelog.client.admin.async_admin import AsyncAdmin

if TYPE_CHECKING:
    from tidelog.cli.top.picture import Frame

EPILOG = examples(
    "tidelog top",
    "tidelog top --interval 5 --internal",
    "tidelog top --once",
    "tidelog top --json | jq .records_per_second",
)
RUNS_WITHOUT_ARGUMENTS = True

_PATIENCE = {"default.api.timeout.ms": 10_000, "request.timeout.ms": 10_000}
"""A picture that waits for half a minute is none."""
_WINDOW_S = 10.0
_FRAME_S = 1.0
_LOOK_S = 3.0
"""A look that takes longer waits for somebody, and the picture says so."""
_TABLE_GAP = 3


@grouped
def command(
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, max=3600.0, help="The refresh interval in seconds.")
    ] = 2.0,
    once: Annotated[
        bool,
        typer.Option("--once", help="Print one sample, of one interval, and exit; the default in pipes."),
    ] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics and groups.")] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per line and interval; with --once, a single one."
        ),
    ] = False,
    metrics: Metrics = None,
    connection: Connection = DEFAULT_CONNECTION,
) -> int:
    """Watch a cluster: brokers, records and bytes a second, busy topics, groups by lag, Spark's queries, slow
    requests, throttled clients. Ctrl-C ends it."""
    options = client_options(connection)
    if not options.keys() & _PATIENCE.keys():
        options |= _PATIENCE
    watch = Watch(options, interval, internal=internal, metrics=metrics)
    if json:
        return asyncio.run(watch.print_json(once=once))
    if once or not _can_draw():
        return asyncio.run(watch.print_once())
    return asyncio.run(watch.draw())


def _can_draw() -> bool:
    from rich.console import Console

    return is_terminal() and not Console().is_dumb_terminal


class Watch:
    """Looks at a cluster again and again."""

    def __init__(
        self,
        options: dict[str, object],
        interval_s: float,
        *,
        internal: bool,
        metrics: Sequence[str] | None = None,
    ) -> None:
        self._options = options
        self._interval_s = interval_s
        self._internal = internal
        self._metrics = metrics
        self._pages: BrokerPages | None = None
        self._stop = asyncio.Event()
        self._samples: deque[Sample] = deque()
        self._silent: set[int] = set()
        """Brokers that did not answer at the last look."""

    async def print_once(self) -> int:
        """Two looks, and what changed between them, as tables."""
        async with self._admin() as admin:
            load = await self._first_load(admin)
        if load is not None:
            print_load(load)
        return 0

    async def print_json(self, *, once: bool) -> int:
        """An object per interval."""
        async with self._admin() as admin:
            load = await self._first_load(admin)
            while load is not None:
                print_json(load, indent=2 if once else None)
                sys.stdout.flush()
                if once:
                    break
                load = await self._next_load(admin)
        return 0

    async def draw(self) -> int:
        """The live picture, on a screen of its own, until somebody ends it."""
        from rich.console import Console
        from rich.live import Live

        from tidelog.cli.top.picture import Frame, draw

        console = Console()
        frame = Frame(due_s=self._interval_s + _LOOK_S)
        async with self._admin() as admin:
            # What is out of reach is said in a sentence, not on a screen that goes away.
            first = await self._sample(admin)
            if first is None:
                return 0
            frame.load = visible(load_between(first, first), internal=self._internal)
            looking = asyncio.create_task(self._look(admin, frame))
            try:
                with Live(console=console, screen=True, auto_refresh=False) as live:
                    while not self._stop.is_set():
                        frame.age_s = time.monotonic() - self._samples[-1].at_s
                        width, height = console.size
                        live.update(draw(frame, width, height), refresh=True)
                        await self._wait(_FRAME_S)
            finally:
                looking.cancel()
        return 0

    async def _look(self, admin: AsyncAdmin, frame: Frame) -> None:
        while True:
            try:
                load = await self._next_load(admin)
            except Exception as error:  # a bug, too: else the picture would stand still without a word
                frame.trouble = sentence(error)
                continue
            if load is None:
                return
            frame.add(load)

    async def _first_load(self, admin: AsyncAdmin) -> ClusterLoad | None:
        if await self._sample(admin) is None:
            return None
        return await self._next_load(admin)

    async def _next_load(self, admin: AsyncAdmin) -> ClusterLoad | None:
        """Wait an interval and look again; None where somebody has ended it."""
        if await self._wait(self._interval_s):
            return None
        now = await self._sample(admin)
        if now is None:
            return None
        # Over some seconds, so that batches do not make rates jump.
        while len(self._samples) > 2 and self._samples[0].at_s < now.at_s - _WINDOW_S:
            self._samples.popleft()
        return visible(load_between(self._samples[0], now), internal=self._internal)

    async def _sample(self, admin: AsyncAdmin) -> Sample | None:
        """A look at the cluster, which is kept; None where somebody has ended it meanwhile."""
        if self._pages is None:
            self._pages = BrokerPages(admin, self._metrics)
        looking = asyncio.create_task(take_sample(admin, self._pages, self._silent))
        ended = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({looking, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not looking.done():
                return None
            self._samples.append(await looking)
            return self._samples[-1]
        finally:
            looking.cancel()
            ended.cancel()

    async def _wait(self, seconds: float) -> bool:
        """Whether somebody ended it before the time was over."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AsyncAdmin]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        async with AsyncAdmin(self._options) as admin:
            await admin.cluster.connect()
            yield admin


def print_load(load: ClusterLoad) -> None:
    """The picture as tables: for people with headings, in pipes tab-separated, one list after the other."""
    people = is_terminal()
    if people:
        rate = "" if load.bytes_per_second is None else f", {bytes_text(load.bytes_per_second)}/s"
        print(
            f"cluster {load.cluster_id or '-'}: {load.records_per_second:,.0f} records/s{rate}, "
            f"lag {load.total_lag:,}, {counted(load.partitions, 'partition')}, "
            f"{load.under_replicated} under-replicated, {load.offline} offline"
        )
    for section in sections(load, for_people=people):
        if people and not section.rows:
            print(f"{section.title}: {section.nothing}")
            continue
        names = [column.name for column in section.columns]
        kept = list(range(len(names)))
        if people:
            widths = [
                max(len(name), *(len(row[at]) for row in section.rows)) for at, name in enumerate(names)
            ]
            kept = kept_columns(section.columns, widths, _width(), gap=_TABLE_GAP, least_first=widths[0])
        print_table(
            [names[at] for at in kept],
            [tuple(row[at] for at in kept) for row in section.rows],
            title=section.title if people else None,
            right=[column.name for column in section.columns if column.number],
        )
    if people and load.unwatched and load.requests:
        remark(f"requests and throttled clients do not cover all brokers: {load.unwatched}")
    for problem in load.problems:
        remark(problem)


def _width() -> int:
    from rich.console import Console

    # One cell at each edge is the table's.
    return Console().width - 2
