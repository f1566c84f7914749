"""SASL as a server speaks it: how a client proves who it is, mechanism by mechanism, without any I/O.

mechanism   what every mechanism offers            plain         PLAIN
jaas        the lines that hold users, options     scram         SCRAM-SHA-256, SCRAM-SHA-512
jwks, jwt   keys that sign tokens, and tokens      oauthbearer   OAUTHBEARER
gssapi      GSSAPI, over ``security/kerberos``     own_tokens    a broker's own, for others

``broker/access/authentication`` speaks with clients by these; the clients' own side is in
``client/_network/security``.
"""
