"""Records that a query should have read and that are gone: an error or a warning (``failOnDataLoss``).

Every report names the partition, how many offsets are lost and what to set to go on. Offsets are counted, not
records: after compaction or transactions there are fewer of these. Used on the driver and on executors.
"""

from __future__ import annotations

import logging

from tidelog.errors import TidelogError

logger = logging.getLogger(__name__)


class DataLossError(TidelogError):
    """Records are gone that the query has not read, and it is not allowed to go on without them."""


NEW_TOPIC = "with the first record of the new topic, or choose another checkpointLocation to begin again"


def report_data_loss(what: str, *, fail: bool, go_on: str = "without them") -> None:
    """Raise ``DataLossError``, or warn; ``what`` is a sentence that counts what is gone.

    ``go_on`` is how a query goes on that is allowed to.
    """
    if fail:
        raise DataLossError(f"{what}; set failOnDataLoss to false to go on {go_on}")
    logger.warning("%s; going on without them, because failOnDataLoss is false", what)
