"""What every API shares of HTTP: errors, paths, origins, bodies, events."""
