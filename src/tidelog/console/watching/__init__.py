"""What clusters are like, and were like: snapshots, what changed between two of them, a history on disk."""
