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
