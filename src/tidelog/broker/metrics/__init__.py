"""What a broker tells of itself over HTTP: loaded only where ``metrics.listeners`` asks for it."""
