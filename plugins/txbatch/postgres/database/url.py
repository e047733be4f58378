"""URLs of databases: the parts of a URL, and the checks of the parts."""

from __future__ import annotations

import re
from itertools import chain

import psycopg2
from psycopg2.extensions import make_dsn
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from txbatch.core.errors import DefinitionError, InvalidSetting

# Several hosts with ports, as libpq writes them and SQLAlchemy does not read them.
_HOST = r"(?:\[[^\]/?@]*\]|[^\[\]:,/?@]*)(?::\d*)?"
_NAMED = re.compile(r"\[?([^\[\]]*?)\]?(?::(\d*))?")
_HOSTS = re.compile(rf"^(\w[\w+]*://(?:[^@/?]*@)?)({_HOST}(?:,{_HOST})+)(?=[/?]|$)")
# What libpq and psycopg2 take as options, and a URL says before its options.
_PARTS = {"dbname", "database", "user", "password"}


def parse(url: str, what: str) -> URL:
    """Return a SQLAlchemy URL in its parts. Raise DefinitionError, which calls the URL `what`, if it is no psycopg2 URL."""
    hosts = _HOSTS.match(url)
    try:
        parsed = make_url("" if "\0" in url else _HOSTS.sub(r"\1", url))
    except (ArgumentError, ValueError):  # whose text may hold the password
        raise no_url(what) from None
    if parsed.drivername not in ("postgresql", "postgresql+psycopg2"):
        raise InvalidSetting(f"{what}: {parsed.drivername!r} is not postgresql+psycopg2://")
    if hosts is not None:
        parsed = with_hosts(parsed, hosts[2], what)
    _check_parts(url, parsed, what)
    return parsed.set(drivername="postgresql+psycopg2")


def no_url(what: str) -> DefinitionError:
    """Return the error for a text that is no URL."""
    return InvalidSetting(f"{what} is not a URL; write postgresql+psycopg2://user@host:port/database")


def with_hosts(url: URL, hosts: str, what: str, port: int | None = None) -> URL:
    """Return the URL with several hosts, and the port of each. Hosts without ports have the last host's port, or `port`.

    Raise DefinitionError if the URL has hosts already, or if `hosts` is no list of hosts.
    """
    if {"host", "port"} & url.query.keys():
        raise InvalidSetting(f"{what} names hosts twice: behind the @, or as ?host=..., and not both")
    named = [_NAMED.fullmatch(each.strip()) for each in hosts.split(",")]
    if not all(named):
        raise no_url(what)
    names, ports = ([str(each[n] or "") for each in named if each] for n in (1, 2))
    if not any(ports[:-1]):
        ports = [ports[-1] or str(port or "")] * len(ports)
    for port in map(int, filter(None, ports)):
        _check_port(port, what)
    return url.update_query_dict({"host": ",".join(names), **({"port": ",".join(ports)} if any(ports) else {})})


def _check_parts(given: str, url: URL, what: str) -> None:
    """Refuse a host that is the rest of a password, and impossible parts.

    A host with a piece of the password would be shown, and asked for in the DNS.
    """
    named = [url.host or "", *(name for key in ("host", "hostaddr") for name in url.normalized_query.get(key, ()))]
    in_a_host = any("@" in name[1:] for each in named for name in each.split(","))  # a socket may be called @name
    if given.count("@") > 1 or in_a_host:
        raise InvalidSetting(f"{what} is not a URL, it has two @: write %40 for one that belongs to the password")
    if "\0" in "".join(map(str, [*url[:6], *url.normalized_query, *chain(*url.normalized_query.values())])):
        raise InvalidSetting(f"{what} holds U+0000, which no part of it can")
    if url.port is not None:
        _check_port(url.port, what)
    for option in url.query:
        _check_option(option, what)
    _check_told_once(url, what)


def _check_port(port: int, what: str) -> None:
    if not 0 < port < 65536:
        raise InvalidSetting(f"{what}: there is no port {port}")


def _check_option(name: str, what: str) -> None:
    """Raise DefinitionError for an option unknown to libpq: psycopg2 would take some unknown options for its own."""
    try:
        make_dsn(**{name: "0"})
    except (psycopg2.Error, TypeError):
        raise InvalidSetting(
            f"{what} has the option {name!r}, which libpq does not know: mend its name, or take it away"
        ) from None


def _check_told_once(url: URL, what: str) -> None:
    """Raise DefinitionError for an option that would replace a part of the URL: errors and people go by the part."""
    told = {"host": url.host, "port": url.port}
    twice = _PARTS | {option for option, part in told.items() if part is not None}
    if found := sorted(twice & url.query.keys()):
        raise InvalidSetting(
            f"{what} has the option {found[0]!r}, which would count in place of a part: take the option away. The parts are "
            "postgresql+psycopg2://user:password@host:port/database, or the fields of an Airflow connection"
        )
