"""The generator's truth, read as it grows: what was planted, and in the end what was paid to whom.

Each run on a directory has a file of its own; whoever resumes has the results of earlier runs as well, and so
needs their truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec


class Truth:
    """What the files have told so far; ``read_on`` reads whole new lines only."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._positions = dict.fromkeys(paths, 0)
        self.cases: list[dict[str, Any]] = []
        """Incidents, and honest people who look like fraudsters, as ``detection_report`` takes them."""
        self.cents_by_user: Counter[str] = Counter()

    def read_on(self) -> None:
        """Take what was written since the last time."""
        for path, position in self._positions.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(position)
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._positions[path] = position + whole
            for line in text[:whole].splitlines():
                self._take(msgspec.json.decode(line, type=dict))

    def _take(self, told: dict[str, Any]) -> None:
        match told:
            case {"record": "incident" | "honest"}:
                self.cases.append(told)
            case {"record": "user", "user_id": str(user), "cents": int(cents)}:
                self.cents_by_user[user] += cents
