"""Every relative link of a page leads to a file that exists and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def prose(page: Path) -> list[str]:
    """The lines outside of code."""
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            inside = not inside
        elif not inside:
            lines.append(line)
    return lines


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links; repeated headings are numbered."""
    found: set[str] = set()
    for line in prose(page):
        if heading := re.match(r"#+ (.+)", line):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            numbered = (name, *(f"{name}-{number}" for number in range(1, 50)))
            found.add(next(each for each in numbered if each not in found))
    return found


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    text = re.sub(r"`[^`]*`", "`code`", "\n".join(prose(page)))
    for link in re.findall(r"(?:\]\(|src=\")([^)\s\"]+)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_the_check_sees_links_and_headings() -> None:
    page = ROOT / "docs" / "contributing" / "style.md"
    assert len(PAGES) > 40
    assert anchors(page)
    assert sum(len(re.findall(r"\]\(", "\n".join(prose(each)))) for each in PAGES) > 200
