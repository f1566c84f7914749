"""``tidelog quotas``: how much of a broker users, clients and addresses may have."""
