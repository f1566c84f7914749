"""CRC-32C, the checksum of record batches, snapshots and the metadata journal.

The function is that of the ``crc32c`` package. Its extension module is loaded directly: the package's own
``__init__`` reads its version with ``importlib.metadata``, which costs a tenth of a broker's start-up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _load() -> Callable[..., int]:
    package = find_spec("crc32c") if "crc32c" not in sys.modules else None
    spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]


crc32c = _load()
