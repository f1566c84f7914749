"""Check that the docs use plain words: `make lint` runs this; docs/contributing/style.md explains the list.

Reads the Markdown files, without their code blocks and inline code, and prints each phrase of the list in
``PHRASES`` with a better one. Generated pages are left out: their texts come from the sources.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "apps/*/README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md")
# Generated; `style.md` quotes what it forbids.
LEFT_OUT = (
    "docs/reference/access.md",
    "docs/reference/cassandra.md",
    "docs/reference/client-configuration.md",
    "docs/reference/client-metrics.md",
    "docs/reference/configuration.md",
    "docs/reference/metrics.md",
    "docs/contributing/benchmarks.md",
    "docs/console/pages.md",
    "docs/contributing/style.md",
)

PHRASES = {
    r"(?:is|are|was|were|be|been) told": "receives, is notified, is reported",
    r"tells? (?:it|them|him|her|of)": "reports, returns, shows",
    r"mend(?:s|ed|ing)?": "fix, change, set",
    r"somebody|nobody|whoever|anybody": "a client, no client, the caller, anyone who",
    r"he|his|him": "they, their, or the passive voice",
    r"of before|of late|lately": "previous, recent",
    r"stands? in": "is in",
    r"beside the loop": "off the event loop, in a thread",
    r"in turns": "in slices, in batches",
    r"a stranger|strangers": "an unauthenticated client",
    r"(?:is|are) to be had|may be had": "is available",
    r"comes? along": "is included",
    r"for ever": "forever",
}
_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"`[^`]*`")
_LISTED = re.compile("|".join(rf"(?P<p{number}>\b(?:{text})\b)" for number, text in enumerate(PHRASES)), re.I)


def main() -> int:
    """Print what is found; 1 if anything is."""
    found = [line for page in pages() for line in complaints(page)]
    print("\n".join(found) if found else "words: nothing to change")
    return 1 if found else 0


def pages() -> list[Path]:
    """The pages to check."""
    every = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    return [path for path in every if not path.relative_to(ROOT).as_posix().startswith(LEFT_OUT)]


def complaints(page: Path) -> Iterator[str]:
    """One line for each phrase that the list has a better word for."""
    for number, text in prose(page.read_text(encoding="utf-8")):
        for match in _LISTED.finditer(text):
            better = list(PHRASES.values())[int(str(match.lastgroup)[1:])]
            yield f"{page.relative_to(ROOT)}:{number}: '{match[0]}': write {better}"


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of code, with their numbers."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            yield number, _CODE.sub("`code`", line)


if __name__ == "__main__":
    sys.exit(main())
