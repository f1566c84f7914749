"""The consumer: reads records from partitions, by hand or as a member of a group.

subscription_state   what is read: topics, pattern, partitions, their positions (partition_state) fetcher
one Fetch in flight per broker (fetch_session), answers into fetch_buffer offsets              offsets by
time, resets, validation of positions async_consumer       AsyncConsumer: the core, on one asyncio loop
consumer   Consumer: its synchronous face stream_consumer      StreamConsumer: parallel streams with a
handler each
"""
