"""The classic group protocol: members join and sync, one of them assigns the partitions.

classic_membership    what the consumer calls
classic_member        JoinGroup, SyncGroup, LeaveGroup; heartbeats, generation
leader                the work of the member that assigns
consumer_protocol     what members tell one another, as bytes
"""
