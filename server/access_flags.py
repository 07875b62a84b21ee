"""Flags of access: who may use the server, and from where."""

from __future__ import annotations

from argparse import ArgumentTypeError
from ipaddress import ip_network

from server.flag_types import path
from server.flags import Flag, Repeated, Switch
from server.tenants.key_file import KeyFile, KeyFileError


def key_file(text: str) -> KeyFile:
    """Read a file of keys. It is not read again at start: it may be a pipe."""
    try:
        return KeyFile.read(path(text))
    except KeyFileError as error:
        raise ArgumentTypeError(str(error)) from None


def networks(text: str) -> str:
    """Convert ``*``, or addresses and networks joined by commas."""
    for network in text.split(",") if text != "*" else ():
        try:
            ip_network(network.strip())
        except ValueError:
            raise ArgumentTypeError(f"{network} is not an address or network") from None
    return text


ACCESS_FLAGS: tuple[Flag, ...] = (
    Repeated(
        name="api-key",
        help="require this key from clients; may be repeated",
        field="api_keys",
        metavar="KEY",
        is_secret=True,
    ),
    Flag(
        name="api-key-file",
        help="require a key of this file, one KEY or NAME:KEY a line; read again on SIGHUP",
        convert=key_file,
        metavar="FILE",
        default_text="none",
    ),
    Switch(
        name="share-prefix-cache",
        help="let API keys reuse each other's cached prefixes and compiled grammars, which shows "
        "what others sent",
    ),
    Repeated(
        name="allowed-hosts",
        help="answer requests for this host name (Host header); * is any; may be repeated",
        metavar="HOST",
        default_text="the server's own names on loopback, else any",
    ),
    Repeated(
        name="allowed-origins",
        help="let web pages of this origin call; * is any; may be repeated",
        metavar="ORIGIN",
    ),
    Flag(
        name="forwarded-allow-ips",
        help="believe X-Forwarded-For of proxies at these addresses or networks, joined by "
        "commas; * is any",
        convert=networks,
        metavar="IPS",
        default_text="none",
    ),
)
