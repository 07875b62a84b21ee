"""The network: a listener with a connection limit, and a protocol with limits and deadlines."""
