"""The API keys of a server: from settings, and read again on SIGHUP. Warnings of open doors."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.settings.key_file import ApiKey, KeyFile, KeyFileError, can_others_read
from server.settings.settings import Settings, is_loopback
from server.tenants.tenant import Keys

logger = logging.getLogger("roseinfer.server")


def keys_of(settings: Settings) -> Keys:
    """The keys that a server starts with."""
    api_keys = _api_keys(settings, settings.api_key_file)
    return Keys(api_keys, share_prefix_cache=settings.share_prefix_cache)


@asynccontextmanager
async def keys_lifespan(settings: Settings, keys: Keys, _app: object) -> AsyncIterator[None]:
    """Warn of unsafe settings, and read the file of keys again on SIGHUP.

    A file that cannot be used changes nothing. Without a file, SIGHUP keeps its meaning. Only the
    main thread gets signals: the keys of an application on another one stay as they are.
    """
    _warn(settings, keys)
    file = settings.api_key_file
    if file is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, _reload, settings, file.path, keys)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _reload(settings: Settings, path: str, keys: Keys) -> None:
    """Runs on the event loop, so it opens no pipe: that waits for a writer."""
    try:
        keys.replace(_api_keys(settings, KeyFile.read(path, waits=False)))
    except KeyFileError as error:
        logger.warning("the API keys stay as they were: %s", error)
    else:
        logger.info("read the API keys again")


def _api_keys(settings: Settings, file: KeyFile | None) -> list[ApiKey]:
    return [*map(ApiKey, settings.api_keys), *(file.keys if file is not None else ())]


def _warn(settings: Settings, keys: Keys) -> None:
    if not keys and settings.uds is None and not is_loopback(settings.host):
        logger.warning(
            "listening on %s without API keys: whoever reaches this port can use the server. "
            "Set --api-key-file, ROSEINFER_API_KEY, or --host 127.0.0.1.",
            settings.host,
        )
    file = settings.api_key_file
    if file is not None and can_others_read(file.path):
        logger.warning(
            "every user of this machine can read the API keys in %s: chmod 600 it.", file.path
        )
