"""API requests to engine jobs. Only this package reads requests."""
