"""What the coordinators of groups and transactions need from a broker: logs, markers, timers, links."""
