"""The event loop's side of the core thread."""
