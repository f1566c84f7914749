"""``tidelog perf``: how fast records are written, read, and carried through a cluster.

Columns, units and percentiles are those of kafka-producer-perf-test, kafka-consumer-perf-test and
EndToEndLatency, so that figures can be laid side by side and scripts that read one read the other: a MB is
2**20 bytes, percentiles are the value at ``int(p * n)`` of the sorted latencies.
"""

from __future__ import annotations

import typer

from tidelog.cli.perf import consume, latency, produce

app = typer.Typer()
app.command("produce", epilog=produce.EPILOG, no_args_is_help=True)(produce.command)
app.command("consume", epilog=consume.EPILOG, no_args_is_help=True)(consume.command)
app.command("latency", epilog=latency.EPILOG, no_args_is_help=True)(latency.command)
