"""Imports go one way, between modules and between packages. Imports for type checkers count."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import tidelog

PACKAGE = Path(tidelog.__file__).parent
SRC = PACKAGE.parent
APPLICATION = Path(__file__).parents[2] / "apps" / "rewards" / "src"


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
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


@cache
def import_graph() -> dict[str, set[str]]:
    modules = {module_name(path, SRC): path for path in PACKAGE.rglob("*.py")}
    modules |= {module_name(path, APPLICATION): path for path in APPLICATION.rglob("*.py")}
    assert len(modules) > 700
    return {name: imported(path, modules) - {name} for name, path in modules.items()}


def siblings(one: str, other: str) -> tuple[str, str] | None:
    """The packages or modules beside each other in which two modules are; None for a package and its own."""
    for end, (mine, its) in enumerate(zip(one.split("."), other.split("."), strict=False), 1):
        if mine != its:
            return ".".join(one.split(".")[:end]), ".".join(other.split(".")[:end])
    return None


def test_no_modules_import_each_other_in_a_circle() -> None:
    # Raises CycleError, which names the circle.
    TopologicalSorter(import_graph()).prepare()


def test_no_siblings_import_each_other() -> None:
    edges: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for importer, names in import_graph().items():
        for name in names:
            if pair := siblings(importer, name):
                edges[pair].append(f"{importer} -> {name}")
    both_ways = {pair: edges[pair] for pair in edges if pair[0] < pair[1] and pair[::-1] in edges}
    assert not both_ways
