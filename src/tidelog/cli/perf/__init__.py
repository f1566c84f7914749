"""``tidelog perf``: how fast a cluster is, with the figures of Kafka's perf tools."""
