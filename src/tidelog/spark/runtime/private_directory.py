"""Directories and files that their owner alone may read: checkpoints and state hold phone numbers.

Tasks of executors on other hosts, which see the same directories, must run as the same user. Imports neither
Spark nor Arrow.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ALL_OF_OWNER, _NO_OTHERS = 0o700, 0o077


def make_private(directory: Path) -> None:
    """Make a directory for its owner alone. One that is there stays as it is: it may be anybody's."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=_ALL_OF_OWNER)
    except FileExistsError:
        if not directory.is_dir():
            raise


def keep_private(directory: Path) -> None:
    """The same for a directory whose name is ours alone: one that is there is closed to others.

    Not where it is a link, or another user's: then somebody has arranged it so.
    """
    make_private(directory)
    found = directory.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if is_own and found.st_mode & _NO_OTHERS:
        directory.chmod(_ALL_OF_OWNER)
