"""Flags of access: who may use the server, and from where."""

from __future__ import annotations

from server.flags import Flag, Repeated, Switch

ACCESS_FLAGS: tuple[Flag, ...] = (
    Repeated(
        name="api-key",
        help="require this key from clients; may be repeated",
        field="api_keys",
        metavar="KEY",
    ),
    Switch(
        name="share-prefix-cache",
        help="let API keys reuse each other's cached prefixes, which shows what others sent",
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
        metavar="IPS",
        default_text="none",
    ),
)
