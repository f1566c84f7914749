"""Processes that must not outlive the one that started them, whatever ends it: SIGKILL too."""
