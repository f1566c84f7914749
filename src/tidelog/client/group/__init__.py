"""Being a member of a consumer group: joining, heartbeats, assignors, commits."""
