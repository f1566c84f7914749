"""Log directories: finding, loading, moving and deleting the logs in them, and their upkeep."""
