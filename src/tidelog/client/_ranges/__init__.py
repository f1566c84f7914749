"""Offset ranges of partitions, read from end to end: what Spark's tasks and ``scan`` have in common.

offset_range     a range of offsets of one partition
fetch_link       connections to a cluster, on a thread of their own
range_fetcher    fetches the ranges, round by round
range_decoder    decodes what was fetched into columns
"""
