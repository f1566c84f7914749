"""The generator's truth file, read as it grows: what was planted, and in the end what was paid to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


class Truth:
    """What the file has told so far; ``read_on`` reads whole new lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self.cases: list[dict[str, Any]] = []
        """Incidents, and honest people who look like fraudsters, as ``detection_report`` takes them."""
        self.cents_by_user: dict[str, int] = {}

    def read_on(self) -> None:
        """Take what was written since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text.rfind(b"\n") + 1
        self._position += whole
        for line in text[:whole].splitlines():
            self._take(msgspec.json.decode(line, type=dict))

    def _take(self, told: dict[str, Any]) -> None:
        match told:
            case {"record": "incident" | "honest"}:
                self.cases.append(told)
            case {"record": "user", "user_id": str(user), "cents": int(cents)}:
                self.cents_by_user[user] = cents
