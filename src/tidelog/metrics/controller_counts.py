"""What the controller of a cluster has done on this broker, over all its terms of office."""

from __future__ import annotations

from tidelog.metrics.histogram import Histogram


class ControllerCounts:
    """Times are in microseconds."""

    def __init__(self) -> None:
        self.waited_us = Histogram()
        """How long events waited for their turn."""
        self.worked_us = Histogram()
        """How long they took."""
        self.elected_us = Histogram()
        """How long elections of leaders took."""
        self.unclean_elections = 0
