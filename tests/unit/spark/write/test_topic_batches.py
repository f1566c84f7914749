from __future__ import annotations

from typing import Any

import pytest

from tidelog.errors import ConfigError
from tidelog.spark.write.topic_batches import topic_batches


def test_the_version_of_a_batch_is_not_for_a_job_to_set() -> None:
    with pytest.raises(
        ConfigError, match="option TxnVersion is the number of each micro-batch: leave it out"
    ):
        topic_batches({"topic": "t", "TxnVersion": "3"})


class Frame:
    """A micro-batch that notes the options that it is written with."""

    def __init__(self) -> None:
        self.written: dict[str, str] = {}
        self.write = self

    def options(self, **given: str) -> Frame:
        self.written |= given
        return self

    def option(self, name: str, text: str) -> Frame:
        return self.options(**{name: text})

    def format(self, name: str) -> Frame:
        return self

    def mode(self, name: str) -> Frame:
        return self

    def save(self) -> None:
        pass


@pytest.mark.parametrize("text", ["at-least-once", " at-least-once", "at-least-once\n"])
def test_a_batch_that_is_written_at_least_once_has_no_name(text: str) -> None:
    frame: Any = Frame()
    topic_batches({"topic": "t", "DeliveryGuarantee": text})(frame, 3)
    assert "txnVersion" not in frame.written
    topic_batches({"topic": "t", "deliveryGuarantee": "exactly-once", "txnAppId": "mine"})(frame, 3)
    assert (frame.written["txnAppId"], frame.written["txnVersion"]) == ("mine", "3")
