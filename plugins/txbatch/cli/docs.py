"""`txbatch docs`: print where the documentation is, and open the copy that a checkout has built."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata

import click

from txbatch import __version__
from txbatch.cli.printing import errors_told
from txbatch.places import in_checkout, packaged, site

# Set where programs can open windows.
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
HELP = "`txbatch COMMAND --help` prints the page of a command, `txbatch explain TX402` the page of an error"


@click.command()
def docs() -> None:
    """Print where the documentation is; on a desktop, also open the documentation in a browser.

    In a checkout, `make docs` builds the documentation, for reading without a network.
    """
    with errors_told():
        found = address()
        click.echo(found or without_address())
        if found and on_desktop():
            click.launch(found)


def address() -> str | None:
    """Return the address of the documentation: of a checkout's own copy, or of the package's metadata; None without either."""
    if not in_checkout():
        return published()
    return site().as_uri() if site().is_file() else None


def published() -> str | None:
    """Return the address in the metadata of the installed package; None if the metadata has no address."""
    with suppress(PackageNotFoundError):
        for entry in metadata("txbatch").get_all("Project-URL") or ():
            label, _, url = entry.partition(", ")
            if label == "Documentation":
                return str(url)
    return None


def without_address() -> str:
    """Return the text to print if the documentation has no address: how to build a copy, or the commands with pages of help."""
    if in_checkout():
        return f"the documentation is not built: run `make docs`, or read {packaged('docs') / 'index.md'}"
    return f"txbatch {__version__} has no address of its documentation: {HELP}"


def on_desktop() -> bool:
    """Return whether a person reads the output, on a machine where a browser can open."""
    return sys.stdout.isatty() and any(os.environ.get(name) for name in DISPLAYS)
