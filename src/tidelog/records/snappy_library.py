"""cramjam, loaded when records are first compressed with snappy or, whole, with zstd: it takes 3 MB.

A broker at rest, or one whose records are not compressed, does without. To load it takes a millisecond.
"""

from __future__ import annotations

import functools
from types import ModuleType


@functools.cache
def cramjam() -> ModuleType:
    """The library."""
    import cramjam

    return cramjam
