"""Keys of a file, and the warnings of a server that starts."""

import logging
import os
import signal
import threading

import anyio
import pytest
from anyio import lowlevel, to_thread

from server.settings.key_file import ApiKey, KeyFile
from server.settings.settings import Settings, parse_settings
from server.tenants.access import keys_lifespan, keys_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("alice:secret")
    path.chmod(0o600)
    return path


async def warnings(caplog, **settings):
    chosen = Settings(**settings)
    caplog.clear()
    async with keys_lifespan(chosen, keys_of(chosen), None):
        pass
    return [record.getMessage() for record in caplog.records]


async def reloaded(soon, caplog):
    """Send SIGHUP; return what was logged."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="roseinfer.server"):
        signal.raise_signal(signal.SIGHUP)
        with soon():
            while not caplog.records:
                await lowlevel.checkpoint()
    [record] = caplog.records
    return record


def test_keys_of_flags_and_file_count_together(key_file):
    keys = keys_of(Settings(api_keys=("one",), api_key_file=KeyFile.read(str(key_file))))
    assert keys.find(b"one").name == "key#1"
    assert keys.find(b"secret").name == "alice"


def test_a_file_is_read_once_at_start(tmp_path):
    """It may be a pipe, as a shell's ``<(...)`` is: a second reading finds nothing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("alice:secret\n",))
    writer.start()
    settings = parse_settings(["serve", "--api-key-file", str(pipe)], {})
    writer.join()
    pipe.unlink()  # else a second reading would wait for a writer
    assert keys_of(settings).find(b"secret").name == "alice"


def test_no_key_is_shown_with_its_file(key_file):
    file = KeyFile.read(str(key_file))
    assert file.keys == (ApiKey("secret", "alice"),)
    assert "secret" not in repr(file)


async def test_sighup_reads_the_file_again(key_file, caplog, soon):
    settings = Settings(api_key_file=KeyFile.read(str(key_file)), api_keys=("flag",))
    keys = keys_of(settings)
    async with keys_lifespan(settings, keys, None):
        key_file.write_text("alice:new")
        assert (await reloaded(soon, caplog)).levelno == logging.INFO
        assert keys.find(b"secret") is None
        assert keys.find(b"new").name == "alice"
        assert keys.find(b"flag").name == "key#1"
        key_file.write_text("# none")
        record = await reloaded(soon, caplog)
        assert record.levelno == logging.WARNING
        assert "contains no key" in record.getMessage()
        assert keys.find(b"new").name == "alice"


async def test_sighup_does_not_wait_for_the_writer_of_a_pipe(key_file, caplog, soon):
    settings = Settings(api_key_file=KeyFile.read(str(key_file)))
    keys = keys_of(settings)
    key_file.unlink()
    os.mkfifo(key_file)
    # Else a reader that blocks would block for ever.
    rescue = threading.Timer(5, key_file.write_text, args=("bob:new",))
    rescue.start()
    async with keys_lifespan(settings, keys, None):
        record = await reloaded(soon, caplog)
    rescue.cancel()
    assert record.levelno == logging.WARNING
    assert "no regular file" in record.getMessage()
    assert keys.find(b"secret").name == "alice"


async def test_without_a_file_sighup_keeps_its_meaning(key_file):
    before = signal.getsignal(signal.SIGHUP)
    for settings in (Settings(), Settings(api_key_file=KeyFile.read(str(key_file)))):
        async with keys_lifespan(settings, keys_of(settings), None):
            is_handled = signal.getsignal(signal.SIGHUP) is not before
            assert is_handled == (settings.api_key_file is not None)
        assert signal.getsignal(signal.SIGHUP) is before


@pytest.mark.parametrize("host", ["::", "", "192.0.2.1"])
async def test_a_public_address_without_keys_is_warned_of(caplog, host):
    [line] = await warnings(caplog, host=host)
    assert line.startswith(f"listening on {host} without API keys")
    assert not await warnings(caplog, host=host, api_keys=("x",))
    assert not await warnings(caplog, host=host, uds="socket")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
async def test_loopback_needs_no_keys(caplog, host):
    assert not await warnings(caplog, host=host)


async def test_a_file_that_others_can_read_is_warned_of(caplog, key_file):
    assert not await warnings(caplog, api_key_file=KeyFile.read(str(key_file)))
    key_file.chmod(0o644)
    [line] = await warnings(caplog, api_key_file=KeyFile.read(str(key_file)))
    assert "can read the API keys" in line
    assert "secret" not in line


async def test_an_application_on_another_thread_keeps_its_keys(key_file):
    """Only the main thread gets signals. A replica of Ray Serve is on another one."""
    settings = Settings(api_key_file=KeyFile.read(str(key_file)))
    keys = keys_of(settings)

    async def live():
        async with keys_lifespan(settings, keys, None):
            pass

    await to_thread.run_sync(anyio.run, live)
    assert keys.find(b"secret").name == "alice"
