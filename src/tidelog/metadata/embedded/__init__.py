"""The metadata store of a broker that runs alone: a tree in memory, a journal and a snapshot on disk."""
