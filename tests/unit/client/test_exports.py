from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import tidelog
import tidelog.client


@pytest.mark.parametrize("name", sorted(tidelog.client.EXPORTS))
def test_every_public_name_can_be_imported_from_both_places(name: str) -> None:
    assert getattr(tidelog, name) is getattr(tidelog.client, name)
    assert name in dir(tidelog)
    assert name in dir(tidelog.client)


@pytest.mark.parametrize("name", sorted(tidelog.client.EXPORTS))
def test_every_public_class_and_method_says_what_it_is_for(name: str) -> None:
    public = getattr(tidelog, name)
    if not inspect.isclass(public):
        return
    assert public.__doc__
    silent = [
        method
        for method, member in inspect.getmembers(public)
        if not method.startswith("_")
        and isinstance(member, FunctionType | property)
        and not inspect.getdoc(member)
    ]
    assert silent == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(tidelog.__file__).parent / "py.typed").exists()


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(tidelog.client.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == set(tidelog.client.EXPORTS)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Producr'"):
        _ = tidelog.Producr
    with pytest.raises(ImportError, match="Producr"):
        from tidelog import Producr  # noqa: F401


def test_importing_the_package_or_the_broker_loads_no_client() -> None:
    program = (
        "import sys, tidelog, tidelog.broker.app\n"
        "print(sorted(name for name in sys.modules if name.startswith('tidelog.client')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("module", ["tidelog", "tidelog.client"])
def test_a_star_brings_every_public_name_and_nothing_else(module: str) -> None:
    names: dict[str, object] = {}
    exec(f"from {module} import *", names)
    del names["__builtins__"]
    assert names.keys() == tidelog.client.EXPORTS.keys()
    assert names["Consumer"] is tidelog.Consumer
