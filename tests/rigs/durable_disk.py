"""A disk that knows what would be left of it after a power failure.

It writes real files below ``root`` and notes what was synced: a file's bytes when the file is synced, a
directory's names when the directory is. ``lose_power`` writes what is left to another directory. Strictly
that is what was synced and nothing else: a name that was not synced is lost, one that was removed without a
sync is back, bytes are those of the last sync, or none. With ``chance`` some of the changes that were not
synced are kept, each rename whole or not at all: up to one of them, as journals of file systems do it, or,
not ``ordered``, any of them, which is all that POSIX promises.

Hand it to whatever writes through :class:`tidelog.storage.disk.Disk`; the metadata store takes its ``fsync``.
"""

from __future__ import annotations

import os
import random
import stat
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.rigs.faulty_disk import FaultyDisk

_Names = dict[str, int]


class _Change(NamedTuple):
    """Of one directory's names: ``source``, if it has one, makes room for ``name``; None is a removal."""

    name: str
    inode: int | None
    source: str | None = None

    def apply(self, names: _Names) -> None:
        if self.source is not None and names.pop(self.source, None) != self.inode:
            return
        if self.inode is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.inode


class DurableDisk(FaultyDisk):
    """A :class:`FaultyDisk` with a memory of syncs; a context manager, as it holds every file open."""

    def __init__(self, root: Path) -> None:
        """What is below ``root`` now is taken to be on the disk."""
        super().__init__()
        self._lock = threading.Lock()
        self._held: dict[int, int] = {}
        """A descriptor for each inode: no other file gets its number."""
        self._names: dict[int, _Names] = {}
        self._contents: dict[int, bytes] = {}
        self._seen: dict[int, _Names] = {}
        self._changes: dict[int, list[_Change]] = {}
        """Of each directory, since it was synced."""
        self._root = self._hold(root)
        self._take_all(self._root)

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        super().fsync(fd)
        with self._lock:
            inode = self._hold(Path(f"/proc/self/fd/{fd}").readlink())
            if self._is_directory(inode):
                self._names[inode] = self._seen[inode] = self._names_now(inode)
                self._changes.pop(inode, None)
            else:
                self._contents[inode] = self._bytes_now(inode)

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        with self._lock:
            directory = self._hold(source.parent)
            self._catch_up(directory)
            super().rename(source, target)
            self._note_rename(directory, source, target)

    def replace(self, source: Path, target: Path) -> None:  # type: ignore[override]
        with self._lock:
            directory = self._hold(source.parent)
            self._catch_up(directory)
            self._maybe_fail("replace")
            source.replace(target)
            self._note_rename(directory, source, target)

    def lose_power(self, target: Path, chance: random.Random | None = None, *, ordered: bool = True) -> Path:
        """Write what is left to ``target``, which must not exist; gives it back."""
        with self._lock:
            self._restore(self._root, target, chance, ordered)
        return target

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def _hold(self, path: Path) -> int:
        """The inode of a file, which is not freed from now on."""
        fd = os.open(path, os.O_PATH)
        inode = os.fstat(fd).st_ino
        if self._held.setdefault(inode, fd) != fd:
            os.close(fd)
        return inode

    def _take_all(self, directory: int) -> None:
        names = self._names[directory] = self._seen[directory] = self._names_now(directory)
        for inode in names.values():
            if self._is_directory(inode):
                self._take_all(inode)
            else:
                self._contents[inode] = self._bytes_now(inode)

    def _path(self, inode: int) -> Path:
        return Path(f"/proc/self/fd/{self._held[inode]}")

    def _is_directory(self, inode: int) -> bool:
        return stat.S_ISDIR(os.fstat(self._held[inode]).st_mode)

    def _names_now(self, directory: int) -> _Names:
        path = self._path(directory)
        return {name: self._hold(path / name) for name in sorted(os.listdir(path))}  # noqa: PTH208

    def _bytes_now(self, inode: int) -> bytes:
        return self._path(inode).read_bytes()

    def _note_rename(self, directory: int, source: Path, target: Path) -> None:
        if source.parent == target.parent:
            now = self._names_now(directory)
            change = _Change(target.name, now[target.name], source.name)
            self._changes.setdefault(directory, []).append(change)
            self._seen[directory] = now
        else:
            for each in (directory, self._hold(target.parent)):
                self._catch_up(each)

    def _catch_up(self, directory: int) -> None:
        """Note what has changed in a directory without this object's doing."""
        seen, now = self._seen.get(directory, {}), self._names_now(directory)
        changes = self._changes.setdefault(directory, [])
        changes += [_Change(name, inode) for name, inode in now.items() if seen.get(name) != inode]
        changes += [_Change(name, None) for name in seen if name not in now]
        self._seen[directory] = now

    def _restore(self, directory: int, target: Path, chance: random.Random | None, ordered: bool) -> None:
        target.mkdir()
        names = dict(self._names.get(directory, {}))
        if chance is not None:
            self._catch_up(directory)
            changes = self._changes[directory]
            kept = chance.randint(0, len(changes))
            for change in changes[:kept] if ordered else changes:
                if ordered or chance.random() < 0.5:
                    change.apply(names)
        for name, inode in names.items():
            if self._is_directory(inode):
                self._restore(inode, target / name, chance, ordered)
                continue
            content = self._contents.get(inode, b"")
            if chance is not None and chance.random() < 0.5:
                content = self._bytes_now(inode)
            (target / name).write_bytes(content)
