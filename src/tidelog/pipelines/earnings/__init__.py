"""earnings: income and task progress of each user, exact to the cent, as a table and as a compacted topic.

schema            the tables, and the state of a user as the topic carries it
transform         records → ledger entries and dead letters, DataFrame → DataFrame
ledger            what a store of the ledger must do; entries and states as plain values
sqlite_ledger     the ledger in the SQLite file of the tables
cassandra_ledger  the ledger in Cassandra
publisher         states to the compacted topic
job               ``PIPELINE``: sources, sinks, checkpoint
"""
