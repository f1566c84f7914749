"""Who may do what, asked of both brokers: every API as users who lack one of the rules that it needs."""
