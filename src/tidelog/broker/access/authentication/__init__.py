"""How clients log in on SASL listeners, before anybody else hears of their requests.

authenticator      the dialogue on one connection, and sessions that end
sasl_listener      what the connections of a listener share: mechanisms, limits, threads
mechanisms         from options to mechanisms           credentials   users, as the metadata have them
bootstrap_user     the first user of a new cluster      delegation_tokens   passwords for a time
"""
