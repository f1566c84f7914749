"""The replay of logs twice: compiled, where the installation has it, and interpreted from its sources."""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import tidelog.coordinator

ROOT = Path(tidelog.coordinator.__path__[0])
# In the order in which they import one another.
SOURCES = {
    "tidelog.coordinator.loading.record_fold": ROOT / "loading/record_fold.py",
    "tidelog.coordinator.group.offsets.committed_offset": ROOT / "group/offsets/committed_offset.py",
    "tidelog.coordinator.group.offsets.commit_fold": ROOT / "group/offsets/commit_fold.py",
    "tidelog.coordinator.loading.log_walker": ROOT / "loading/log_walker.py",
    "tidelog.coordinator.loading.log_replay": ROOT / "loading/log_replay.py",
}


class ReplayModules:
    """One variant: its modules by the last part of their names."""

    def __init__(self, label: str) -> None:
        self.label = label
        if label == "compiled":
            loaded = {name: importlib.import_module(name) for name in SOURCES}
        else:
            loaded = _interpreted()
        self.commit_fold = loaded["tidelog.coordinator.group.offsets.commit_fold"]
        self.log_walker = loaded["tidelog.coordinator.loading.log_walker"]
        self.log_replay = loaded["tidelog.coordinator.loading.log_replay"]

    @classmethod
    def is_compiled(cls) -> bool:
        """Whether the installation has the compiled variant."""
        return bool(importlib.import_module("tidelog.coordinator.loading.log_walker").COMPILED)


def _interpreted() -> dict[str, ModuleType]:
    before = {name: sys.modules.get(name) for name in SOURCES}
    loaded: dict[str, ModuleType] = {}
    try:
        for name, source in SOURCES.items():
            spec = spec_from_file_location(name, source)
            assert spec is not None
            assert spec.loader is not None
            loaded[name] = sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(loaded[name])
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
    return loaded
