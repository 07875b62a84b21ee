"""Responses of POST /v1/responses: items and events."""
