"""What leaves a client besides its requests: metrics for reporters and brokers, its cluster id for listeners.

observers       starts and stops all of them with the client
telemetry       pushes metrics to a broker (KIP-714): payload, by the broker's subscription
"""
