"""The admin client: everything that can be asked of a cluster besides records.

async_admin                   ``AsyncAdmin``: one method per call; holds no state but its cluster
admin                         ``Admin``: the same methods, generated, synchronous, for any number of threads
topics, config_changes        topics and partitions; configs of topics, brokers and groups
groups, group_members,        groups of both protocols: listing, describing, deleting, committed
group_offsets, group_lag,     offsets and lag, moving offsets, removing members
offset_reset, remove_members
transactions, producer_states transactional ids, producers, hanging transactions
log_dirs, features, replicas  disks, feature levels, elections and reassignments
acls, scram_users, quotas     access rules, users who log in by SCRAM, quotas
*_resources                   the dataclasses that go in and come out (others: ``client.resources``)
"""
