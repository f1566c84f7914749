"""A collector of OpenTelemetry's, as far as exports of metrics go: keeps what is posted to it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2


class Collector:
    """Takes what is posted, or answers as it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, dict(self.headers), body))
                self.send_response(outer.status)
                if outer.status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{outer.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def points(self) -> list[tuple[str, int]]:
        """The sums that have come, by name."""
        return [
            (metric.name, point.as_int)
            for sent in self._sent()
            for metric in sent
            for point in metric.sum.data_points
        ]

    def names(self) -> set[str]:
        """Of all that has come."""
        return {metric.name for sent in self._sent() for metric in sent}

    def _sent(self) -> Iterator[list[Any]]:
        for _, _, body in self.requests:
            sent = metrics_service_pb2.ExportMetricsServiceRequest.FromString(gzip.decompress(body))
            for resource in sent.resource_metrics:
                for scope in resource.scope_metrics:
                    yield list(scope.metrics)
