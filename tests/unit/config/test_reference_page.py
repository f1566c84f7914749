from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "generate_reference", ROOT / "scripts" / "generate_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_page_says_what_the_tables_say() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert page == _generator().render(), "run `make docs`"


def test_the_reference_page_of_clients_says_what_their_tables_say() -> None:
    page = (ROOT / "docs" / "reference" / "client-configuration.md").read_text(encoding="utf-8")
    assert page == _generator().render_clients(), "run `make docs`"


def test_the_reference_page_of_cassandra_says_what_its_table_says() -> None:
    page = (ROOT / "docs" / "reference" / "cassandra.md").read_text(encoding="utf-8")
    assert page == _generator().render_cassandra(), "run `make docs`"


def test_the_reference_page_of_access_says_what_is_checked() -> None:
    page = (ROOT / "docs" / "reference" / "access.md").read_text(encoding="utf-8")
    assert page == _generator().render_access(), "run `make docs`"


def test_the_reference_page_of_metrics_says_what_is_declared() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert page == _generator().render_metrics(), "run `make docs`"


def test_the_reference_page_of_the_clients_metrics_says_what_is_declared() -> None:
    page = (ROOT / "docs" / "reference" / "client-metrics.md").read_text(encoding="utf-8")
    assert page == _generator().render_client_metrics(), "run `make docs`"


def test_the_consoles_groups_are_those_of_the_tables() -> None:
    module = (ROOT / "src" / "tidelog" / "console" / "api" / "config_groups.py").read_text(encoding="utf-8")
    assert module == _generator().render_layout(), "run `make docs`"
