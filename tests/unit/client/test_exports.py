from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import tidelog
import tidelog.client

ROOT = Path(__file__).parents[3]

MODULES_FOR_PROGRAMS = (
    "tidelog.client.admin.cluster_resources",
    "tidelog.client.admin.group_resources",
    "tidelog.client.admin.offset_reset",
    "tidelog.client.admin.transaction_resources",
    "tidelog.client.consumer.errors",
    "tidelog.client.consumer.failure_policy",
    "tidelog.client.consumer.interceptors",
    "tidelog.client.errors",
    "tidelog.client.group.assignor",
    "tidelog.client.group.assignors.cooperative_sticky",
    "tidelog.client.group.assignors.range",
    "tidelog.client.group.assignors.round_robin",
    "tidelog.client.group.assignors.sticky",
    "tidelog.client.metadata",
    "tidelog.client.metrics",
    "tidelog.client.producer.errors",
    "tidelog.client.producer.interceptors",
    "tidelog.client.producer.partitioner",
    "tidelog.client.producer.record",
    "tidelog.client.reporters",
    "tidelog.client.resources",
    "tidelog.client.serialization",
)
"""Where programs find the names that ``tidelog`` itself does not offer."""


@pytest.mark.parametrize("name", sorted(tidelog.client.EXPORTS))
def test_every_public_name_can_be_imported_from_both_places(name: str) -> None:
    assert getattr(tidelog, name) is getattr(tidelog.client, name)
    assert name in dir(tidelog)
    assert name in dir(tidelog.client)


@pytest.mark.parametrize("module", sorted({*tidelog.client.EXPORTS.values(), *MODULES_FOR_PROGRAMS}))
def test_every_public_class_and_method_says_what_it_is_for(module: str) -> None:
    names = [name for name, where in tidelog.client.EXPORTS.items() if where == module]
    found = [getattr(importlib.import_module(module), name) for name in names]
    if module in MODULES_FOR_PROGRAMS:
        found = [each for each in vars(importlib.import_module(module)).values() if is_own(each, module)]
    for public in found:
        if not inspect.isclass(public):
            continue
        assert public.__doc__
        silent = [
            method
            for method, member in inspect.getmembers(public)
            if not method.startswith("_")
            and isinstance(member, FunctionType | property)
            and not inspect.getdoc(member)
        ]
        assert (public, silent) == (public, [])


def is_own(value: object, module: str) -> bool:
    return inspect.isclass(value) and value.__module__ == module and not value.__name__.startswith("_")


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


def test_the_clients_and_what_a_first_program_needs_come_with_a_star() -> None:
    names: dict[str, object] = {}
    exec("from tidelog import *", names)
    needed = {
        "Producer",
        "Consumer",
        "Admin",
        "AsyncProducer",
        "AsyncConsumer",
        "AsyncAdmin",
        "TopicPartition",
    }
    assert needed | {"NewTopic", "ConsumerRecord", "KafkaError", "OffsetSpec"} <= names.keys()


def test_only_what_most_programs_need_is_offered() -> None:
    assert len(tidelog.client.EXPORTS) <= 70


@pytest.mark.parametrize(
    "page", ["README.md", *[each.relative_to(ROOT).as_posix() for each in (ROOT / "docs").rglob("*.md")]]
)
def test_the_pages_import_only_what_is_offered(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = re.findall(r"^from tidelog import ([\w, ]+)$", text, re.MULTILINE)
    imported = {name.strip() for line in lines for name in line.split(",")}
    assert imported <= tidelog.client.EXPORTS.keys()
