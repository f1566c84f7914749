"""Where two answers differ, place by place."""

from __future__ import annotations

ABSENT = "(absent)"


def differences(ours: object, theirs: object, path: str = "") -> dict[str, tuple[object, object]]:
    """Our value and theirs for each place where they are not the same, by its path."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found: dict[str, tuple[object, object]] = {}
        for name in dict.fromkeys((*theirs, *ours)):
            where = f"{path}.{name}" if path else str(name)
            found |= differences(ours.get(name, ABSENT), theirs.get(name, ABSENT), where)
        return found
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(ours) == len(theirs):
        found = {}
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            found |= differences(mine, other, f"{path}[{index}]")
        return found
    return {} if ours == theirs else {path: (ours, theirs)}
