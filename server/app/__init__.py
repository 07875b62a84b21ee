"""The application: its list of routes, its list of ASGI layers, and its lifespan."""
