from __future__ import annotations

import pytest

from tidelog.errors import ConfigError
from tidelog.spark.topic_batches import topic_batches


def test_the_version_of_a_batch_is_not_for_a_job_to_set() -> None:
    with pytest.raises(
        ConfigError, match="option TxnVersion is the number of each micro-batch: leave it out"
    ):
        topic_batches({"topic": "t", "TxnVersion": "3"})
