"""Talk to any Kafka cluster of version 2.1 or later, Tidelog's or Apache's, from one asyncio loop.

    connection    one TCP connection: negotiated versions, correlation ids, requests in flight
    cluster       many of them: bootstrap, metadata, routing to leaders and the controller, retries
    admin         topics, partitions, configs, records, offsets, groups, transactions
    producer      batches to partition leaders          consumer      records from assigned partitions

Nothing here imports the server.
"""
