"""What all pipelines share: reading, parsing, sinks, dead letters, sessions, status."""
