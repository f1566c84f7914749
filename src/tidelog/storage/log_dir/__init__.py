"""One log directory: its lock, its identity, its checkpoints and the clean-shutdown mark."""
