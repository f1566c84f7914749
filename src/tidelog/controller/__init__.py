"""The single writer of the cluster's metadata: topics, partitions, elections, features."""
