"""What `make lint` says of the words in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import check_words


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    return tmp_path / "page.md"


def test_a_phrase_of_the_list_is_found_with_its_line_and_a_better_word(page: Path) -> None:
    page.write_text("One line.\nThe client is told the offset, and Somebody mends it.\n")
    assert list(check_words.complaints(page)) == [
        "page.md:2: 'is told': write receives, is notified, is reported",
        "page.md:2: 'Somebody': write a client, no client, the caller, anyone who",
        "page.md:2: 'mends': write fix, change, set",
    ]


def test_code_and_parts_of_words_are_left_alone(page: Path) -> None:
    page.write_text("Recommended: `somebody` heals this.\n\n```text\nwhoever asks is told\n```\n")
    assert list(check_words.complaints(page)) == []


def test_generated_pages_and_the_list_itself_are_left_out() -> None:
    names = [page.relative_to(check_words.ROOT).as_posix() for page in check_words.pages()]
    assert "README.md" in names
    assert "docs/how-to/client.md" in names
    assert "docs/reference/cli.md" in names
    assert not set(names) & {"docs/reference/configuration.md", "docs/contributing/style.md"}
