"""``tidelog.scan``: a topic as a lazy table.

scan            ``scan``, which checks its arguments and needs no pyarrow until it has
_topic_scan     ``TopicScan``, the table: a ``pyarrow.dataset.Dataset`` that reads a topic
_scan_source    the topic, its options and the snapshot of its offsets, which all passes share
_scan_bounds    where a scan begins and ends, by partition
_scan_pass      one pass over the records, fetched by client/_ranges
_pruning        which partitions, offsets and times a filter can match
_polars_scan    the table as a polars ``LazyFrame``
"""
