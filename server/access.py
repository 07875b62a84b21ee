"""The API keys of a server: from settings, and read again on SIGHUP. Warnings of open doors."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar

from server.addresses import is_loopback
from server.settings import Settings
from server.tenants.key_file import ApiKey, KeyFileError, can_others_read, read_keys
from server.tenants.keys import Keys

logger = logging.getLogger("roseinfer.server")


def keys_of(settings: Settings) -> Keys:
    """The keys that a server starts with. Raises KeyFileError."""
    return Keys(_api_keys(settings), share_prefix_cache=settings.share_prefix_cache)


def keys_lifespan(
    settings: Settings, keys: Keys
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Warn of unsafe settings, and read the file of keys again on SIGHUP.

    A file that cannot be used changes nothing. Without a file, SIGHUP keeps its meaning.
    """

    @asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        for warning in _warnings(settings, keys):
            logger.warning(warning)
        if settings.api_key_file is None:
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, _reload, settings, keys)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    return lifespan


def _reload(settings: Settings, keys: Keys) -> None:
    try:
        keys.replace(_api_keys(settings))
    except KeyFileError as error:
        logger.warning("the API keys stay as they were: %s", error)
    else:
        logger.info("read the API keys again")


def _api_keys(settings: Settings) -> list[ApiKey]:
    api_keys = [ApiKey(key) for key in settings.api_keys]
    if settings.api_key_file is not None:
        api_keys += read_keys(settings.api_key_file)
    return api_keys


def _warnings(settings: Settings, keys: Keys) -> list[str]:
    warnings = []
    if not keys and settings.uds is None and not is_loopback(settings.host):
        warnings.append(
            f"listening on {settings.host} without API keys: whoever reaches this port can use "
            "the server. Set --api-key-file, ROSEINFER_API_KEY, or --host 127.0.0.1."
        )
    if settings.api_key_file is not None and can_others_read(settings.api_key_file):
        warnings.append(
            f"every user of this machine can read the API keys in {settings.api_key_file}: "
            "chmod 600 it."
        )
    return warnings
