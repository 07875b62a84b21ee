"""The application: its routes, ASGI layers, lifespan and draining."""
