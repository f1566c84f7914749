"""Who may do what: authentication, authorization, and the audit log of both."""
