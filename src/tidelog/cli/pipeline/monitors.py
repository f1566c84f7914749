"""Who sees the figures of running pipelines: the options that say so, and the export that shows them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.failure import WrongUsage

if TYPE_CHECKING:
    from tidelog.spark.pipelines.metrics_export import MetricsExport
    from tidelog.spark.pipelines.pipeline import Pipeline

OTLP_INTERVAL_S = 60.0
OTLP_TIMEOUT_S = 10.0

MetricsAddress = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve /metrics for Prometheus there, with /live and /ready.",
        show_default=False,
    ),
]
Otlp = Annotated[
    str | None,
    typer.Option(
        "--otlp",
        metavar="URL",
        help="Send the same figures to an OpenTelemetry collector every minute.",
        show_default=False,
    ),
]
OtlpHeaders = Annotated[
    str | None,
    typer.Option(
        "--otlp-headers",
        metavar="NAME=VALUE,…",
        envvar="TIDELOG_OTLP_HEADERS",
        help="Headers for the collector, a password say.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Monitors:
    """Who wants to see the figures of a run: nobody, or those who ask at an address, or a collector."""

    metrics: MetricsAddress = None
    otlp: Otlp = None
    otlp_headers: OtlpHeaders = None

    @property
    def host(self) -> str:
        """Where the page is."""
        return (self.metrics or "").removeprefix("http://").rpartition(":")[0] or "0.0.0.0"

    def export(self, pipelines: Sequence[Pipeline]) -> MetricsExport | None:
        """What shows them; raises ``ConfigError``."""
        if self.metrics is None and self.otlp is None:
            return None
        from tidelog.metrics.http_server import address_of
        from tidelog.metrics.otlp_export import Target, endpoint_of, headers_of
        from tidelog.spark.pipelines.metrics_export import MetricsExport
        from tidelog.version import __version__

        if self.metrics is not None and self.metrics.strip().startswith("https://"):
            raise WrongUsage(
                f"--metrics {self.metrics}: this page has no TLS; listen on 127.0.0.1 behind a proxy that has"
            )
        target = None
        if self.otlp is not None:
            headers = headers_of(self.otlp_headers or "", "--otlp-headers")
            target = Target(endpoint_of(self.otlp, "--otlp"), headers, OTLP_INTERVAL_S, OTLP_TIMEOUT_S)
        about = {
            "service.name": "tidelog-pipeline",
            "service.version": __version__,
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
            "tidelog.pipelines": ",".join(each.name for each in pipelines),
        }
        address = None if self.metrics is None else address_of(self.metrics, "--metrics")
        return MetricsExport(address, target, about)


DEFAULT_MONITORS = Monitors()
"""Stands for the options in the signature of a command."""
