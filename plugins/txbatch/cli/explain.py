"""`txbatch explain`: print the page of an error code, offline."""

from __future__ import annotations

import click

from txbatch.cli.printing import errors_told
from txbatch.core.errors import UnknownName
from txbatch.error_pages import read_pages


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Print the page of the error CODE: its meaning, whether any number is wrong, and the remedy."""
    with errors_told():
        pages = read_pages()
        found = pages.get(code.strip().upper())
        if found is None:
            codes = ", ".join(near(code, pages))
            raise UnknownName(f"no error has the code {code!r}: codes are {codes}; for example `txbatch explain TX402`")
        click.echo(found)


def near(code: str, pages: dict[str, str]) -> list[str]:
    """Return the codes of the same area, or the range of all codes.

    >>> near("TX4", {"TX101": "", "TX401": "", "TX402": ""})
    ['TX401', 'TX402']
    """
    area = [each for each in pages if each[:3] == code.strip().upper()[:3]]
    return area or ["TX001 to TX999"]
