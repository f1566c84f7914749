"""The options of producers, consumers and admin clients, in Kafka's names with Kafka's defaults.

    common, security              options that all clients share
    producer, consumer, admin     one table per client
    unsupported                   options of Java's clients without effect here
    foreign_names                 other Python clients' names, and ours for them
    rules                         what one option means for another
    client_config                 ClientConfig: mapping and keyword arguments, read and checked

``docs/reference/client-configuration.md`` is written from these tables by ``make docs``.
"""

from tidelog.client.options.client_config import ADMIN, CONSUMER, PRODUCER, ClientConfig, ClientKind

__all__ = ["ADMIN", "CONSUMER", "PRODUCER", "ClientConfig", "ClientKind"]
