"""The version of this release, for whoever tells it: the clients tell brokers, the command line people."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"

_SHORT = 12


def commit() -> str:
    """The commit that runs from a working copy, shortened; empty where there is none.

    Read from git's files: no program is started for it.
    """
    for directory in Path(__file__).resolve().parents[:4]:
        found = _head_of(directory / ".git")
        if found:
            return found[:_SHORT]
    return ""


def _head_of(git: Path) -> str:
    try:
        if git.is_file():
            # A worktree says where its own files are, and those where the common ones are.
            git = Path(git.read_text().partition("gitdir:")[2].strip())
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.partition(":")[2].strip()
        common = git / "commondir"
        root = (git / common.read_text().strip()) if common.exists() else git
        for path in (git / name, root / name):
            if path.exists():
                return path.read_text().strip()
        for line in (root / "packed-refs").read_text().splitlines():
            if line.endswith(f" {name}"):
                return line.partition(" ")[0]
    except OSError:
        # No working copy, or one that this user may not read.
        return ""
    return ""
