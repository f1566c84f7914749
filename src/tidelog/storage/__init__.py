"""Partitions on disk: segments and indexes, one partition's log, log directories, recovery, compaction."""
