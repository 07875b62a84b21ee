"""The state of a sequence."""
