"""A console in a thread of the test, listening on a port of the loopback interface."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from tests.rigs.waiting import wait_until

from tidelog.cli.console import Telling
from tidelog.console.serve import ConsoleServer
from tidelog.console.service import Console
from tidelog.console.settings import ClusterSettings, ConsoleSettings, Listen

_WAIT_S = 60.0


class ConsoleThread:
    """Started by ``with``; ``client()`` is a browser's session without a browser."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self._ready = threading.Event()
        self._port = 0
        self._server: ConsoleServer | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="console")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_WAIT_S), "the console does not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive(), "the console does not end"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def client(self) -> Iterator[ApiClient]:
        with httpx.Client(base_url=f"{self.url}/api", timeout=_WAIT_S) as http:
            yield ApiClient(http)

    def break_history(self) -> None:
        """Closes its file, which stands for all that SQLite may raise.

        In the history's own thread: under a statement of another thread that ends the process.
        """
        history = self.console.history
        history._thread.submit(history._db.close).result(_WAIT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._failure = error
            self._ready.set()
            raise

    async def _main(self) -> None:
        self.console = Console(self.settings, Telling)
        self._server = ConsoleServer(self.console, self._on_ready)
        await self._server.run_until_ended()

    def _on_ready(self, port: int) -> None:
        self._port = port
        self._ready.set()


class ApiClient:
    """The API with a session: its cookie and its token."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.token = ""
        self.session = self.get("/session")
        self.token = self.session["token"]

    def get(self, path: str, **query: Any) -> Any:
        return self._checked(self.http.get(path, params=query))

    def change(self, method: str, path: str, **body: Any) -> Any:
        return self._checked(self.try_change(method, path, **body))

    def try_change(self, method: str, path: str, **body: Any) -> httpx.Response:
        return self.http.request(method, path, json=body, headers={"X-Console-Token": self.token})

    def log_in(self, user: str, password: str) -> httpx.Response:
        answer = self.try_change("POST", "/session", user=user, password=password)
        if answer.status_code == 200:
            self.session = answer.json()
            self.token = self.session["token"]
        return answer

    def wait_for_look(self, cluster: str = "main") -> None:
        """Until the console has looked at the cluster as it is now."""
        now_ms = time.time_ns() // 1_000_000
        wait_until(lambda: self.get(f"/clusters/{cluster}/overview")["at_ms"] > now_ms, "a look")

    @staticmethod
    def _checked(answer: httpx.Response) -> Any:
        assert answer.status_code == 200, answer.text
        return answer.json()


def console_settings(data_dir: Path, bootstrap: str, **more: Any) -> ConsoleSettings:
    """One cluster, ``main``; looks often."""
    clusters = more.pop("clusters", (ClusterSettings("main", {"bootstrap.servers": bootstrap}),))
    listen = more.pop("listen", Listen("127.0.0.1", 0))
    return ConsoleSettings(clusters, listen, data_dir, **{"refresh_s": 0.5, **more})
