# cython: language_level=3
"""What a shard may do with records before any object is made of them: a fold, of which only the end counts.

``log_walker`` offers each record to the fold of its shard by ``put``, as it lies in the log. What the fold
refuses, and markers of transactions, become events; before each of these the walker asks for a ``cut``: what
was put before it counts before the event. A fold that is full grows or is drained.

This one takes nothing. ``group/offsets/commit_fold`` takes commits of offsets.

Compiled and interpreted from this one source, see ``records/record_codec``; ``record_fold.pxd`` has the C
types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Cython's compiler goes by the first branches, the interpreter and mypy by the second ones.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

REFUSED = 0
TAKEN = 1
FULL = 2


@cython.cclass
class RecordFold:
    """A fold that refuses every record."""

    __slots__ = ()

    @property
    def can_grow(self) -> bool:
        """Whether a full fold may become larger instead of being drained."""
        return False

    def grow(self) -> None:
        """Make room for more."""

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def cut(self) -> cython.Py_ssize_t:
        """What follows counts later than what was put: gives the number of entries to drain before it."""
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def has_run(self) -> cython.bint:
        """Whether anything was put since the last cut."""
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put(
        self,
        source: cython.p_const_uchar,
        key_at: cython.Py_ssize_t,
        key_length: cython.Py_ssize_t,
        value_at: cython.Py_ssize_t,
        value_length: cython.Py_ssize_t,
        record_offset: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Take one record: TAKEN, REFUSED if it is not of the usual form, or FULL."""
        return REFUSED
