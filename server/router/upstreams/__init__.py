"""The servers behind the router: processes, connections, requests."""
