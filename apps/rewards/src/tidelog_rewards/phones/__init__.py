"""Tokens in place of phone numbers, and their keys."""
