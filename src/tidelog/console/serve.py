"""Serves the web application until somebody ends it; with ``connection`` the module that knows uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from tidelog.console.connection import BrowserConnection
from tidelog.console.service import Console
from tidelog.console.web import application
from tidelog.errors import ConfigError

_LAST_WORDS_S = 2
_CONNECTIONS = 500


class ConsoleServer(uvicorn.Server):
    """Listens for browsers; SIGINT and SIGTERM end it, or ``should_exit``.

    Says when it is ready, and tells streams that they end, so that nobody waits for them.
    """

    def __init__(self, console: Console, on_ready: Callable[[int], None]) -> None:
        listen = console.settings.listen
        super().__init__(
            uvicorn.Config(
                application(console),
                log_config=None,
                log_level="error",  # what strangers send wrongly shall not fill the log
                access_log=False,
                server_header=False,
                proxy_headers=False,
                http=BrowserConnection,
                ws="none",
                limit_concurrency=_CONNECTIONS,
                timeout_graceful_shutdown=_LAST_WORDS_S,
                ssl_certfile=None if listen.tls_certificate is None else str(listen.tls_certificate),
                ssl_keyfile=None if listen.tls_key is None else str(listen.tls_key),
            )
        )
        self._console = console
        self._on_ready = on_ready
        self._listening = _bound(listen.host.strip("[]"), listen.port)

    async def run_until_ended(self) -> None:
        """Serve; ``on_ready`` is told the port."""
        await self.serve(sockets=[self._listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready(self._listening.getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.stopping.set()
        await super().shutdown(sockets)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, proto)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(
            f"cannot listen on --listen {host}:{port}: {reason}; choose another address"
        ) from None
    listening.listen(128)
    listening.setblocking(False)
    return listening
