"""``tidelog metrics``: what Prometheus and Grafana need to watch brokers.

``dashboards`` writes the dashboards and the alert rules that come with this release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.failure import Failure
from tidelog.cli.output import examples, remark
from tidelog.metrics import alerts
from tidelog.metrics import dashboards as shipped

app = typer.Typer()


@app.callback()
def group() -> None:
    """Dashboards and alerts for what brokers tell at /metrics."""


@app.command(
    no_args_is_help=True,
    epilog=examples("tidelog metrics dashboards ./grafana", "tidelog start --metrics 127.0.0.1:9404"),
)
def dashboards(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put the files.")],
) -> None:
    """Write dashboards for Grafana and alert rules for Prometheus."""
    files = {f"tidelog-{each.name}.json": shipped.grafana(each) for each in shipped.ALL}
    files["tidelog-alerts.yml"] = alerts.rules()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)
    except OSError as error:
        raise Failure(
            f"{error.filename or directory}: {(error.strerror or str(error)).lower()}: "
            "choose another directory"
        ) from error
    remark(
        f"wrote {', '.join(files)} to {directory}: import the dashboards into Grafana, and add the "
        "rules file to rule_files in prometheus.yml"
    )
