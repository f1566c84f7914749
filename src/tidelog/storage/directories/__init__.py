"""A broker's log directories together: finding, loading, moving and deleting their logs, and upkeep."""
