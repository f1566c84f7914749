"""Figures of clients' telemetry: how pushes go, and what clients have pushed; and the same by client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.broker.metrics.client_pages import json_page
from tidelog.broker.telemetry.client_figures import ClientFigures, families
from tidelog.broker.telemetry.client_telemetry import ClientTelemetry
from tidelog.ids import uuid_to_text
from tidelog.metrics import catalog
from tidelog.metrics.page import Page, escaped

if TYPE_CHECKING:
    from tidelog.broker.metrics.observed import ObservedBroker

_MOST_CLIENTS = 5000


def telemetry_figures(page: Page, telemetry: ClientTelemetry) -> Iterator[str]:
    """The families of telemetry, then those that clients have pushed."""
    counts, figures = telemetry.counts, telemetry.figures
    yield from page.family(catalog.TELEMETRY_INSTANCES, [("", telemetry.instance_count)])
    yield from page.family(catalog.TELEMETRY_EXPORTS, [("", counts.exported)])
    yield from page.family(catalog.TELEMETRY_ERRORS, [("", counts.failed)])
    yield from page.family(catalog.TELEMETRY_THROTTLED, [("", counts.throttled)])
    yield from page.family(catalog.TELEMETRY_UNKNOWN, [("", counts.unknown_subscriptions)])
    if figures is None:
        return
    yield from page.family(catalog.TELEMETRY_SERIES, [("", figures.series)])
    yield from page.family(catalog.TELEMETRY_LEFT_OUT, [("", figures.left_out)])
    yield from page.family(catalog.CLIENT_INFO, ((_info(each), 1) for each in figures))
    for family in families(figures):
        if family is None:
            yield ""
        else:
            yield from page.family(family.metric, family.samples)


def _info(figures: ClientFigures) -> str:
    named = {"client_source_address": figures.client.address, **figures.resource}
    more = ",".join(f'{name}="{escaped(value)}"' for name, value in named.items())
    return f"{{{figures.label_text},{more}}}"


def telemetry_page(broker: ObservedBroker) -> Iterator[str]:
    """The same by client, as JSON: for commands and consoles that ask for one, not for all."""
    telemetry, clock = broker.running_telemetry, broker.clock
    everybody = () if telemetry is None or telemetry.figures is None else telemetry.figures

    def row(figures: ClientFigures) -> dict[str, object]:
        client = figures.client
        return {
            "client_instance_id": uuid_to_text(client.instance_id),
            "client_id": client.client_id,
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": client.address,
            "pushes": figures.pushes,
            "last_push_ms_ago": int(clock.monotonic_ms() - figures.pushed_at_ms),
            "about": figures.resource,
            "metrics": [
                {"name": key.name, "labels": key.labels, "value": value}
                for key, value in figures.series.items()
            ],
        }

    yield from json_page(broker, "clients", everybody, row, _MOST_CLIENTS)
