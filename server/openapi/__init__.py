"""GET /openapi.json: routes as Litestar describes them, types as msgspec describes them."""
