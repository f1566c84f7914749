"""The pages' files: every text has its translation, and nothing enters a page but as text."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from tidelog.console.api.config_groups import BROKER_GROUPS, TOPIC_GROUPS
from tidelog.options import display_name_of

STATIC = Path(str(files("tidelog.console") / "static"))
SCRIPTS = sorted(STATIC.rglob("*.js"))
_CALL = re.compile(r"""\bt\((["'])((?:\\.|(?!\1).)+)\1""")
_COLUMN = re.compile(r'\{ name: "([^"]+)"(?=.*\bcell:)')
_EVENT = re.compile(r'^  "[a-z-]+": "([^"]+)",$', re.MULTILINE)
_ENTRY = re.compile(r'^  "((?:\\.|[^"\\])+)": "((?:\\.|[^"\\])+)",$', re.MULTILINE)
_PLACE = re.compile(r"\{\w+\}")


def chinese() -> dict[str, str]:
    text = (STATIC / "chinese.js").read_text(encoding="utf-8")
    return {key.replace('\\"', '"'): value for key, value in _ENTRY.findall(text)}


def used() -> set[str]:
    found: set[str] = set()
    for script in SCRIPTS:
        if script.name == "chinese.js":
            continue
        text = script.read_text(encoding="utf-8")
        found |= {each[1] for each in _CALL.findall(text)} | set(_COLUMN.findall(text))
    return found | set(_EVENT.findall((STATIC / "events.js").read_text(encoding="utf-8")))


def test_every_text_of_the_pages_has_a_translation() -> None:
    assert len(used()) > 200
    assert used() - chinese().keys() == set()


def test_groups_of_configs_and_names_of_topic_configs_have_a_translation() -> None:
    texts = {*TOPIC_GROUPS, *BROKER_GROUPS}
    texts |= {display_name_of(name) for names in TOPIC_GROUPS.values() for name in names}
    assert texts - chinese().keys() == set()


def test_translations_have_the_places_of_their_originals() -> None:
    for english, words in chinese().items():
        assert set(_PLACE.findall(english)) == set(_PLACE.findall(words)), english


def test_markup_enters_no_page() -> None:
    ways = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
    )
    for script in SCRIPTS:
        text = script.read_text(encoding="utf-8")
        assert [each for each in ways if each in text] == [], script


def test_pages_ask_for_nothing_from_elsewhere_and_have_no_inline_code() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix in (".js", ".css", ".html"):
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text, path
            assert "https://" not in text, path
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.search(r"<script(?![^>]*\ssrc=)", page) is None
    assert "style=" not in page
    assert re.search(r"\son\w+=", page) is None
