"""Requests to the brokers of a cluster: addresses, connections, metadata, retries.

cluster                      requests to the right broker, once or until a deadline
metadata_updater             keeps the snapshot of the metadata (client/metadata) fresh
leaders, coordinators        one request to each responsible broker; unanswered: brokers that do not answer
node_connections             one node_connection per broker and channel: back-off, idle time, new logins
connect, security            opens a connection: sockets, TLS, SASL
connection, receiver         one TCP connection: versions, requests in flight, frames
settings, from_options       what the network needs of a client's options
retry, ongoing_errors        deadlines and back-off; errors that last, logged once
traffic                      bytes and requests per broker, as metrics
zookeeper_brokers            brokers found in ZooKeeper (zookeeper_session)
"""
