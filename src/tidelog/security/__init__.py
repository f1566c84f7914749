"""Who somebody is and what he may do: what broker, clients and commands have in common about security.

principal   the name that a client is known by          session   who is at the other end of a connection
kerberos    tickets, keytabs and rules for names

Knows nothing of the broker, the client or where things are kept.
"""
