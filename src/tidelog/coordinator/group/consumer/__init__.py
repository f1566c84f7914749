"""The consumer group protocol of KIP-848, with its assignors, and classic members of its groups."""
