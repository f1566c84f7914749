"""One log: its files, how it is appended to, read, loaded and recovered."""
