"""Old spellings of commands: all work in this version, and print the new spelling."""

from __future__ import annotations

import shlex

import click

from txbatch.core.text import one_line


def spelled_now(old: str, *new: str) -> None:
    """Print to stderr the new command that replaces an old spelling."""
    click.echo(
        one_line(f"txbatch: `txbatch {old}` works in this version alone; write `txbatch {shlex.join(new)}`"), err=True
    )
