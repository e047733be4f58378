"""Symbolic links, which are followed nowhere in the staging area."""

from __future__ import annotations

from typing import Any

from fsspec.implementations.local import LocalFileSystem


def links_on(filesystem: Any, path: str) -> bool:
    """True if a path is a symbolic link, which only a local disk has."""
    return isinstance(filesystem, LocalFileSystem) and bool(filesystem.islink(path))
