"""Finds symbolic links: the staging area follows no links."""

from __future__ import annotations

from typing import Any

from fsspec.implementations.local import LocalFileSystem


def links_on(filesystem: Any, path: str) -> bool:
    """Return whether a path is a symbolic link; only a local disk has links."""
    return isinstance(filesystem, LocalFileSystem) and bool(filesystem.islink(path))
