"""Tenants: who a request is from, found before anything else is done for it."""
