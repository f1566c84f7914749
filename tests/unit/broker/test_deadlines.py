"""Who waits is told when its time is up, and not after it has ended its wait."""

from __future__ import annotations
