"""The process: signals and shutdown, the service manager, garbage collection."""
