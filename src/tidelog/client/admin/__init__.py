"""The admin client: everything that can be asked of a cluster besides records.

async_admin                      ``AsyncAdmin``: one method per call; holds no state but its cluster
admin                            ``Admin``: the same methods, generated, synchronous, for any thread
*_resources                      the dataclasses that go in and come out (others: ``client.resources``)
offset_reset, quotas,            dataclasses and calls: moving offsets, quotas,
scram_users, delegation_tokens   users who log in by SCRAM, delegation tokens

_topics, _config_changes         topics and partitions; configs of topics, brokers and groups
_groups, _group_members,         groups of both protocols: listing, describing, deleting, committed
_group_offsets, _group_lag,      offsets and lag, removing members
_remove_members
_transactions, _producer_states  transactional ids, producers, hanging transactions
_log_dirs, _features, _replicas  disks, feature levels, elections and reassignments
_acls                            access rules
_access_explanation,             for the command line and the console: why a principal may do something,
_reassignment_plan,              plans to move replicas, how fast replicas may move
_replication_throttle
"""
