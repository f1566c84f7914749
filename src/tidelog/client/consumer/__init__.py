"""The consumer: reads records from partitions, by hand or as a member of a group.

async_consumer       ``AsyncConsumer``: the core, on one asyncio loop
consumer             ``Consumer``: the core on a thread, methods generated, ``poll`` by poll_port
stream_consumer      ``StreamConsumer``: parallel streams with a handler each
subscription_state   what is read: topics, pattern, partitions, their positions (partition_state)
fetcher              one Fetch in flight per broker (fetch_session), answers into fetch_buffer
positions            committed offsets, offsets by time, resets, validation of positions
"""
