"""Spellings of before: they work in this version, and print how one spells the same now."""

from __future__ import annotations

import shlex

import click

from txbatch.core.text import one_line


def spelled_now(old: str, *new: str) -> None:
    """Print to stderr the words of the command that takes the place of an old spelling."""
    click.echo(
        one_line(f"txbatch: `txbatch {old}` works in this version alone; write `txbatch {shlex.join(new)}`"), err=True
    )
