"""What a consumer reads and where it is: shared by the consumer and its group membership.

_subscription_state     topics, pattern or partitions, and the state of each partition
_partition_state        position, fetch state and end offsets of one partition
offsets                 ``OffsetAndMetadata``; checks of what a program passes
listener                ``RebalanceListener``, which a program derives from
_reset_strategy         where to begin without a committed offset
"""
