"""earnings: income and task progress of each user, exact to the cent, as a table and as a compacted topic.

schema            the tables, and the state of a user as the topic carries it
parts             the parts of the ledger: which user is in which, and where they lie
packing           records → parcels of entries and dead letters for the parts, Arrow → bytes
part_work         what the task of a part does with them, and what the tasks of a backfill do
ledger            what a store of the ledger must do; entries and states as plain values
sqlite_ledger     the ledger of a part in a SQLite file
cassandra_ledger  the ledger in Cassandra
key_spill         keys to derive anew, in the order of users, in bounded memory
publisher         states to the compacted topic by themselves; which copy of the job goes on
transform         the dead letters of a range of time, DataFrame → DataFrame
job               ``PIPELINE``: sources, sinks, checkpoint
"""
