"""Every import and name of ours in the prose and tables of the documentation exists.

The programs are run elsewhere: ``tests/integration/test_client_docs.py`` and ``test_spark_docs.py``.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog import extensions
from tidelog.client.options.client_config import ADMIN, CONSUMER, PRODUCER
from tidelog.config.options.broker_options import SUBJECTS as BROKER_SUBJECTS
from tidelog.config.options.topic_options import TOPIC_OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
CLIENTS = ("Admin", "AsyncAdmin", "AsyncConsumer", "AsyncProducer", "Consumer", "Producer", "StreamConsumer")

_PROGRAM = re.compile(r"^```python\n.*?^```\n", re.M | re.S)
_CODE = re.compile(r"`([^`\n]+)`")
_DOTTED = re.compile(r"(tidelog(?:\.[A-Za-z_]\w*)+)(\(.*)?")
_OF_MODULE = re.compile(r"((?:`\w+`(?:, | and |, and )?)+),? of `(tidelog(?:\.\w+)+)`")
# Names that begin like our package and are not in it: options of brokers, topics, Spark and Iceberg tables.
_PROPERTY_PREFIXES = ("tidelog.batch.", "tidelog.adopt.", "tidelog.broker.", "tidelog.query.")
_ENTRY_POINTS = (
    extensions.COMMANDS,
    extensions.PIPELINES,
    extensions.CONSOLE_PAGES,
    extensions.RECORD_OPENERS,
)


def prose(page: Path) -> str:
    """A page without its programs."""
    return _PROGRAM.sub("", page.read_text(encoding="utf-8"))


def resolve(dotted: str) -> object:
    """The module, or the attribute of one, that a dotted name means."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        try:
            found: object = importlib.import_module(name)
        except ModuleNotFoundError as error:
            # One that needs a package that is not installed exists all the same.
            if error.name != name and not name.startswith(f"{error.name}."):
                raise
            continue
        for attribute in parts[count:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(dotted)


def options() -> set[str]:
    tables = [each.options for each in (ADMIN, CONSUMER, PRODUCER)]
    broker = {option.name for subject in BROKER_SUBJECTS.values() for option in subject}
    return broker | set(TOPIC_OPTIONS) | {name for table in tables for name in table}


def dotted_names(page: Path) -> Iterator[str]:
    known = options()
    for code in _CODE.findall(prose(page)):
        match = _DOTTED.fullmatch(code.strip())
        if (
            match is None
            or match[1] in known
            or match[1] in _ENTRY_POINTS
            or match[1].startswith(_PROPERTY_PREFIXES)
        ):
            continue
        yield match[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_dotted_names_of_the_package_exist(page: Path) -> None:
    for name in dotted_names(page):
        try:
            resolve(name)
        except AttributeError as error:
            raise AssertionError(f"{page.name} names {name}, which does not exist") from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_imports_in_prose_work(page: Path) -> None:
    text = prose(page)
    lines = [line.strip() for line in text.splitlines()] + _CODE.findall(text)
    for line in lines:
        if not re.match(r"(from tidelog[\w.]* import |import tidelog)", line):
            continue
        (statement,) = ast.parse(line).body
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                assert statement.module is not None
                if alias.name != "*":
                    resolve(f"{statement.module}.{alias.name}")
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                resolve(alias.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_names_of_a_module_are_in_that_module(page: Path) -> None:
    for names, module in _OF_MODULE.findall(prose(page)):
        for name in re.findall(r"\w+", names):
            resolve(f"{module}.{name}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_methods_of_clients_exist(page: Path) -> None:
    for owner, method in re.findall(rf"`({'|'.join(CLIENTS)})\.(\w+)", prose(page)):
        assert hasattr(getattr(tidelog, owner), method), f"{page.name} names {owner}.{method}"


def test_the_table_of_administration_lists_methods_of_the_admin_client() -> None:
    text = prose(ROOT / "docs" / "reference" / "client.md")
    section = text.partition("\n## Administration")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")]
    listed = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert {name for name in listed if not hasattr(tidelog.Admin, name)} == set()
    public = {name for name in vars(tidelog.Admin) if not name.startswith("_")}
    assert public - listed == {"client_instance_id", "close", "config", "metrics"}


@pytest.mark.parametrize("kind", ["how-to", "reference"])
def test_the_classes_that_the_pages_of_the_client_name_exist(kind: str) -> None:
    text = prose(ROOT / "docs" / kind / "client.md")
    named = {name for code in _CODE.findall(text) for name in re.findall(r"^([A-Z]\w*[a-z]\w*)\b", code)}
    modules = [
        importlib.import_module(found.name)
        for package in ("tidelog.client", "tidelog.security.acls")
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        if not found.name.endswith(".gssapi")
    ]
    known = {name for module in (*modules, builtins) for name in vars(module)} | set(dir(tidelog))
    assert named
    # A placeholder of the page, and classes of pyarrow and polars.
    assert named - known <= {"LazyFrame", "RecordBatch", "RecordBatchReader", "SomeType"}
