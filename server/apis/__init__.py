"""One folder an API: its routes, translation, rendering and errors.

Importing this package registers the APIs whose errors have a shape of their own: what calls
``server.http.apis.shape_at`` in a process of its own imports it first, as the router does.
"""

from __future__ import annotations

from server.apis.anthropic import errors as _anthropic  # noqa: F401
from server.apis.ollama import errors as _ollama  # noqa: F401
