"""The model: load it, hook its attention, run steps."""
