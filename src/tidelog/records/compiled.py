"""Reports an installation without compiled modules: once per process, by its first client or its broker.

The modules that ``hatch_build`` compiles run interpreted as well, only many times slower, and nothing else
would show it. Called by producers, consumers and the broker's process.
"""

from __future__ import annotations

import logging
import threading

from tidelog.records.record_reader import COMPILED

logger = logging.getLogger(__name__)

REMEDY = (
    "install a C compiler and Python's headers, then run "
    "`pip install --force-reinstall --no-cache-dir --no-deps tidelog`"
)

_first = threading.Lock()


def report_interpreted() -> None:
    """Log one warning with the remedy where records are handled by interpreted code; the first call does."""
    if not COMPILED and _first.acquire(blocking=False):
        logger.warning(
            "Tidelog is installed without its compiled modules, and handles records many times slower than "
            "with them: %s",
            REMEDY,
        )
