"""The record codec twice: compiled, where the installation has it, and interpreted from the same sources."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import tidelog.records

# In the order in which they import one another.
NAMES = (
    "record_reader",
    "record_writer",
    "record_codec",
    "record_walker",
    "column_reader",
    "column_writer",
    "column_codec",
    "arrow",
)
SOURCES = {name: Path(tidelog.records.__path__[0], f"{name}.py") for name in NAMES}


class CodecModules:
    """One variant of the codec: its modules, and a way to put them in the place of the installed ones."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._modules: dict[str, ModuleType] = {}
        if label == "compiled":
            for name in NAMES:
                self._modules[name] = importlib.import_module(f"tidelog.records.{name}")
        else:
            with self.installed():
                for name in NAMES:
                    self._modules[name] = _load_source(name)
        self.records = self._modules["record_codec"]
        self.walker = self._modules["record_walker"]
        self.columns = self._modules["column_codec"]
        self.arrow = self._modules["arrow"]

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Imports find this variant while the block runs."""
        full_names = {name: f"tidelog.records.{name}" for name in NAMES}
        before = {name: sys.modules.get(full_names[name]) for name in NAMES}
        sys.modules.update({full_names[name]: module for name, module in self._modules.items()})
        try:
            yield
        finally:
            for name, module in before.items():
                if module is None:
                    sys.modules.pop(full_names[name], None)
                else:
                    sys.modules[full_names[name]] = module


def _load_source(name: str) -> ModuleType:
    spec = spec_from_file_location(f"tidelog.records.{name}", SOURCES[name])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compiled_file(name: str) -> Path | None:
    """The file of the compiled module, if the installed one is compiled."""
    module = importlib.import_module(f"tidelog.records.{name}")
    return Path(module.__file__) if module.COMPILED and module.__file__ else None
