"""The transaction coordinator, whose state is kept in ``__transaction_state``."""
