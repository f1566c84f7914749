"""Who uses the console: logins, sessions, roles, and an audit log of what was changed."""
