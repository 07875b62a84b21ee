"""``roseinfer doctor``: whether a server would start here, and what it would have."""
