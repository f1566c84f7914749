"""From the bytes of a coordinator's log to its shard."""
