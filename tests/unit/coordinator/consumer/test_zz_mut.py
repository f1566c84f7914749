import tidelog.coordinator.group.consumer.group as g

_orig = g.ConsumerGroup.partition_epoch
g.ConsumerGroup.partition_epoch = lambda self, t, p: None
from tests.unit.coordinator.consumer.test_group_model import Groups
from hypothesis import settings


class T(Groups.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
