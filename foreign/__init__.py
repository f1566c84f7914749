"""Programs that are not ours, as tests and benchmarks run them: fetching them, and brokers as processes."""
