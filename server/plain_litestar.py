"""PlainLitestar: Litestar without plugins for packages whose classes no route has."""

from __future__ import annotations

from litestar import Litestar
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin


class PlainLitestar(Litestar):
    """It does not look for pydantic and attrs, which a start would import if they are there."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]
