"""Server-side assignors: who is to own which partition.

Kafka's two, ``uniform`` and ``range``, with the same results given the same order of members and topics.
Kafka takes that order from its hash maps; here members go by id and topics by id, so that an assignment can
be foretold. Neither looks at racks, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.group.consumer.assignors.range_assignor import RangeAssignor
from tidelog.coordinator.group.consumer.assignors.spec import Assignor
from tidelog.coordinator.group.consumer.assignors.uniform_assignor import UniformAssignor

ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor())
}
