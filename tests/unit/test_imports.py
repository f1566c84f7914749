"""No module imports one that imports it, by whatever way; imports for type checkers included."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import tidelog

PACKAGE = Path(tidelog.__file__).parent
SRC = PACKAGE.parent


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, modules: dict[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` names a module, any other import what the package offers.
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (whole & modules.keys()) or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules.keys()


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    assert len(modules) > 700
    graph = {name: imported(path, modules) - {name} for name, path in modules.items()}
    # Raises CycleError, which names the circle.
    TopologicalSorter(graph).prepare()
