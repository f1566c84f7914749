"""Prints the table of docs/reference/compatibility.md from the suite: `python -m tests.compat.matrix`."""

from __future__ import annotations

from foreign.toolchain import ROOT
from tests.compat.clients import CLIENTS, FEATURES

PAGE = ROOT / "docs" / "reference" / "compatibility.md"
BEGIN = "<!-- printed by `python -m tests.compat.matrix`; do not edit by hand -->\n"
END = "<!-- end of the printed part -->\n"


def tables() -> str:
    names = [client.name for client in CLIENTS]
    lines = ["| what is checked | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    reasons: list[str] = []
    for feature, meaning in FEATURES.items():
        cells = []
        for client in CLIENTS:
            if feature in client.lacks:
                reason = client.lacks[feature]
                if reason not in reasons:
                    reasons.append(reason)
                cells.append(f"–<sup>{reasons.index(reason) + 1}</sup>")
            else:
                cells.append("✓")
        lines.append(f"| {meaning} | " + " | ".join(cells) + " |")
    notes = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join([*lines, "", "Not with every client:", "", *notes]) + "\n"


def page() -> str:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + tables() + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(page())
