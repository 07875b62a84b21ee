"""HTTP that every API shares: errors, paths, origins, bodies, events."""
