"""Quotas: how much of a broker each client may have.

client_quotas                 ``ClientQuotas``: the quotas in force, which handlers ask
token_bucket                  what is measured, beside rates over windows (``metrics/sampled_rate``): tokens
client_levels                 whose quota a client has, by Kafka's eight levels, and who shares it
rate_quota, mutation_quota    rates and changes of the cluster: how long a client has to pause
address_quotas                quotas of IP addresses, for the network, which limits connections
request_time                  the time that requests take of the loop, for ``request_percentage``

Quotas are kept in the metadata (``config/client_quotas``). A client that has had too much is answered at
once, told for how long to pause, and not read from meanwhile (KIP-219). While there is no quota,
nothing here is loaded but ``client_quotas``.
"""
