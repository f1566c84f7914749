"""The child with the generator: what ``tidelog events generate`` does, for topics that are there.

It is told its settings as one JSON argument and ends at SIGTERM, after the batch at hand. It is a module of
its own because the command line takes as long to load as all the rest, while Spark starts beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidelog.errors import TidelogError
from tidelog_rewards.generator.delivery import deliver, stop_request, to_topics
from tidelog_rewards.generator.traffic import Traffic, TrafficSettings
from tidelog_rewards.generator.truth import truth_file


def run(arguments: Mapping[str, Any]) -> None:
    """Send events until told to stop."""
    now = datetime.now(UTC).replace(microsecond=0)
    settings = TrafficSettings(now, arguments["seed"], arguments["rate"])
    with (
        stop_request() as stopped,
        truth_file(Path(arguments["truth"])) as truth,
        to_topics({"bootstrap.servers": arguments["bootstrap_servers"]}) as destination,
    ):
        deliver(Traffic(settings, truth), destination, paced=True, stopped=stopped)


def main() -> int:
    """Run with the settings of the command line."""
    try:
        run(json.loads(sys.argv[1]))
    except TidelogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
