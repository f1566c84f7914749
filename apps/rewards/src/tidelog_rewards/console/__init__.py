"""The part of the console that shows incidents."""
