"""``tidelog.scan``: a topic as a lazy table.

scan           ``scan``, which checks its arguments and needs no pyarrow until it has
topic_scan     ``TopicScan``, the table: a ``pyarrow.dataset.Dataset`` that reads a topic
scan_source    the topic, its options and the snapshot of its offsets, which all passes share
scan_bounds    where a scan begins and ends, by partition
scan_pass      one pass over the records, fetched by client/ranges
pruning        which partitions, offsets and times a filter can match
polars_scan    the table as a polars ``LazyFrame``
"""
