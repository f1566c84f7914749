"""A REST catalog for tests: what the lake asks for, on loopback, with PyIceberg's SQL catalog behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

TOKEN = "let me in"
_STATUS = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class RestCatalog:
    """The catalog, and how its next answers are lost."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.tables = SqlCatalog(
            "rest", uri=f"sqlite:///{root}/rest.sqlite?timeout=60", warehouse=f"file://{root}"
        )
        self.uri = ""
        self.lost_answers = 0
        """So many commits take place, and nobody hears of it."""

    def answer(self, method: str, path: list[str], body: bytes) -> dict[str, Any]:
        match method, path:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                namespace = json.loads(body)["namespace"]
                self.tables.create_namespace(tuple(namespace))
                return {"namespace": namespace, "properties": {}}
            case "GET" | "HEAD", ["namespaces", namespace]:
                return {
                    "namespace": [namespace],
                    "properties": self.tables.load_namespace_properties(namespace),
                }
            case "GET", ["namespaces", namespace, "tables"]:
                names = [identifier[-1] for identifier in self.tables.list_tables(namespace)]
                return {"identifiers": [{"namespace": [namespace], "name": name} for name in names]}
            case "POST", ["namespaces", namespace, "tables"]:
                wanted = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
                assert wanted.partition_spec is not None
                created = self.tables.create_table(
                    (namespace, wanted.name),
                    wanted.table_schema,
                    partition_spec=wanted.partition_spec,
                    properties=wanted.properties,
                )
                return _told(created)
            case "GET", ["namespaces", namespace, "tables", name]:
                return _told(self.tables.load_table((namespace, name)))
            case "POST", ["namespaces", namespace, "tables", name]:
                change = CommitTableRequest.model_validate_json(body)
                table = self.tables.load_table((namespace, name))
                response = self.tables.commit_table(table, change.requirements, change.updates)
                if self.lost_answers:
                    self.lost_answers -= 1
                    raise TimeoutError
                told: dict[str, Any] = json.loads(response.model_dump_json(by_alias=True))
                return told
        raise AssertionError(f"{method} {path}")


def _told(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


@contextmanager
def rest_catalog(root: Path) -> Iterator[RestCatalog]:
    catalog = RestCatalog(root)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, told = 200, {}
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, told = 401, _error("NotAuthorizedException", 401)
            else:
                try:
                    path = self.path.split("?")[0].strip("/").split("/")[1:]
                    told = catalog.answer(self.command, path, body)
                except TimeoutError:
                    status, told = 504, _error("TimeoutError", 504)
                except tuple(_STATUS) as error:
                    status = _STATUS[type(error)]
                    told = _error(type(error).__name__, status)
            content = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_HEAD = answer

        def log_message(self, *arguments: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    catalog.uri = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield catalog
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _error(kind: str, status: int) -> dict[str, Any]:
    return {"error": {"message": kind, "type": kind, "code": status}}
