"""Reports an installation without compiled modules: once per process, by its first client or its broker.

The modules that ``hatch_build`` compiles run interpreted as well, only many times slower, and nothing else
would show it. Called by producers, consumers and
the broker's process, each with ``COMPILED`` of the module that it uses: all are compiled, or none is.
"""

from __future__ import annotations

import logging
import threading

logger = logging.getLogger(__name__)

REMEDY = (
    "install a C compiler and Python's headers, then run "
    "`pip install --force-reinstall --no-cache-dir --no-deps tidelog`"
)

_first = threading.Lock()


def report_interpreted(is_compiled: bool) -> None:
    """Log one warning with the remedy unless ``is_compiled``; the first call that finds so does it."""
    if not is_compiled and _first.acquire(blocking=False):
        logger.warning(
            "Tidelog is installed without its compiled modules, and handles records many times slower than "
            "with them: %s",
            REMEDY,
        )
