"""Records, logs and traces of requests."""
