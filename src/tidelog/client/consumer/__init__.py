"""The consumer: reads records from partitions, by hand or as a member of a group.

async_consumer       ``AsyncConsumer``: the core, on one asyncio loop
consumer             ``Consumer``: the core on a thread, methods generated, ``poll`` by _poll_port
stream_consumer      ``StreamConsumer``: parallel streams (_message_stream) with a handler each
_fetch               one Fetch in flight per broker, answers into a buffer
_positions           committed offsets, offsets by time, resets, validation of positions
_commits             commits of the program

What is read, and where the consumer is, is in client/subscription; its membership is in client/group.
"""
