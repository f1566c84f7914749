"""Being a member of a consumer group: joining, heartbeats, assignors, commits.

membership                  what a consumer sees of its membership, and the one of a consumer without a group
_classic, _consumer         the memberships of both protocols; _membership_choice picks one
assignor, assignors         the interface of an assignor, and those of Kafka
_coordinator_link           requests to the group's coordinator
_group_offsets              committed offsets; _member_offsets, _auto_commit: when a member commits
_handover                   commits before partitions go to others; _rebalance_callbacks calls the listener
"""
