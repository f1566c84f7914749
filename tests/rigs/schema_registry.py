"""A schema registry in a thread of the test: the part of Confluent's API that serializers and readers use.

It keeps schemas as they were registered. ``misbehave`` replaces its answers, to be hostile.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

_WAIT_S = 60.0


@dataclass
class Registered:
    id: int
    guid: str
    text: str
    type: str
    references: list[dict[str, Any]]
    subjects: list[tuple[str, int]] = field(default_factory=list)


class SchemaRegistry:
    """Started by ``with``; listens on a port of the loopback interface."""

    def __init__(
        self, *, user: str = "", password: str = "", token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.schemas: dict[int, Registered] = {}
        self.asked: list[str] = []
        """Paths of the requests that came, in their order."""
        self.misbehave: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.released = threading.Event()
        """Set at the end: handlers that keep somebody waiting wait for it."""
        self._login = (
            f"Bearer {token}"
            if token
            else "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
            if user
            else ""
        )
        self._lock = threading.Lock()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._answer(self)

            def do_POST(self) -> None:
                registry._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="schema registry")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_WAIT_S)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def register(
        self, subject: str, text: str, type_: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id of a schema under a subject, new or known."""
        with self._lock:
            for each in self.schemas.values():
                if (each.text, each.type, each.references) == (text, type_, references or []):
                    found = each
                    break
            else:
                number = len(self.schemas) + 1
                found = Registered(number, str(uuid.uuid4()), text, type_, references or [])
                self.schemas[number] = found
            versions = [
                each for each in self.schemas.values() for name, _ in each.subjects if name == subject
            ]
            if all(name != subject for name, _ in found.subjects):
                found.subjects.append((subject, len(versions) + 1))
            return found.id

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length)) if length else {}
        self.asked.append(request.path)
        if self.misbehave is not None:
            self.misbehave(request)
            return
        if self._login and request.headers.get("Authorization") != self._login:
            _send(request, 401, {"error_code": 401, "message": "no"})
            return
        path = urlsplit(request.path).path
        if request.command == "POST":
            _send(request, 200, self._post(path, body))
            return
        found = self._get(path)
        if found is None:
            _send(request, 404, {"error_code": 40403, "message": "there is none"})
        else:
            _send(request, 200, found)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        match = re.fullmatch(r"/subjects/([^/]+)(?:/versions)?", path)
        assert match is not None, path
        subject, references = unquote(match[1]), body.get("references") or []
        number = self.register(subject, body["schema"], body.get("schemaType", "AVRO"), references)
        version = next(each for name, each in self.schemas[number].subjects if name == subject)
        return {**_shown(self.schemas[number]), "id": number, "subject": subject, "version": version}

    def _get(self, path: str) -> Any:
        if match := re.fullmatch(r"/schemas/ids/(\d+)(/versions)?", path):
            found = self.schemas.get(int(match[1]))
            if found is None or not match[2]:
                return None if found is None else _shown(found)
            return [{"subject": name, "version": version} for name, version in found.subjects]
        if match := re.fullmatch(r"/schemas/guids/([0-9a-f-]+)", path):
            return next((_shown(each) for each in self.schemas.values() if each.guid == match[1]), None)
        if match := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", path):
            subject, version = unquote(match[1]), int(match[2])
            for each in self.schemas.values():
                if (subject, version) in each.subjects:
                    return {**_shown(each), "id": each.id, "subject": subject, "version": version}
        return None


def _shown(schema: Registered) -> dict[str, Any]:
    shown: dict[str, Any] = {"schema": schema.text, "guid": schema.guid}
    if schema.type != "AVRO":
        shown["schemaType"] = schema.type
    if schema.references:
        shown["references"] = schema.references
    return shown


def _send(request: BaseHTTPRequestHandler, status: int, answer: Any) -> None:
    send_body(request, json.dumps(answer).encode(), status)


def send_body(request: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Answer a request."""
    request.send_response(status)
    request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    request.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)
