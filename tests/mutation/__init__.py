"""Mutation testing: whether some test fails when one thing in the code is changed."""
