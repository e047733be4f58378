"""`txbatch gc`: fold contributions and remove old windows by policy, of one topology or of all (R22, R30)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from txbatch.core.corrections.retention import FoldableHistory, Retention
from txbatch.core.corrections.window_retention import Windows
from txbatch.core.errors import InvalidRetention, NotFoldable
from txbatch.core.state.keep import Keep, describe_keep
from txbatch.run.window_retention import leave


class StagingCleaner(Protocol):
    """Removes the files of killed processes from the staging area, once no process reads the files. See `storage.leftovers`."""

    def number(self, topology: str, final: int) -> int:
        """Return the number of folders to remove now."""

    def remove(self, topology: str, final: int) -> int:
        """Remove the folders of all final txids up to this txid, and of ended processes. Return the number of removed folders."""


@dataclass(frozen=True, slots=True)
class Collector:
    """Folds contributions, and removes leftover folders. Returns a row per topology with its horizon, and the reason to wait."""

    retention: Retention
    leftovers: StagingCleaner
    windows: Windows

    def one(self, topology: str, keep: Keep | None = None, *, dry_run: bool = False) -> dict[str, Any]:
        """Fold a topology by this policy, or by the policy of its job. Raise DefinitionError if the job keeps everything."""
        keep = keep or self._policy(topology)
        return self._folded(self.retention.past(topology, keep), keep, dry_run=dry_run)

    def all(self, *, dry_run: bool = False) -> Iterator[dict[str, Any]]:
        """Fold each topology by its policy. If a topology is being rebuilt or cannot be folded, only return its row,
        with the reason.
        """
        for topology, keep in self.retention.policies().items():
            if keep is None:
                horizon = self.retention.horizon(topology)
                yield _row(topology, None, horizon, horizon)
                continue
            past = self.retention.past(topology, keep)
            try:
                yield self._folded(past, keep, dry_run=dry_run or past.rebuild is not None)
            except NotFoldable as error:
                yield _row(topology, keep, past.horizon, past.horizon) | {"waits_for": error.text}

    def _policy(self, topology: str) -> Keep:
        keep = self.retention.policy(topology)
        if keep is None:
            raise InvalidRetention(
                f"{topology} is kept for ever by its job: say what stays, --keep-txids N or --keep-days N; or in the job, "
                f"Topology({topology!r}, keep=Keep(days=90))"
            )
        return keep

    def _folded(self, past: FoldableHistory, keep: Keep, *, dry_run: bool) -> dict[str, Any]:
        kept, topology = self.retention, past.topology
        done = [kept.outlook(past)] if dry_run else list(kept.fold(topology, past.wanted))
        after = past if dry_run else kept.past(topology, keep)
        folders = self.leftovers.number if dry_run else self.leftovers.remove
        left = leave(self.windows, topology, dry_run=dry_run, horizon=past.reached)
        return _row(topology, keep, past.horizon, past.reached if dry_run else after.horizon) | {
            "versions": sum(each.versions for each in done),
            "rows": sum(each.rows for each in done),
            "attempts": sum(each.attempts for each in done),
            "quarantined": sum(each.quarantined for each in done),
            "windows": sum(each["windows"] for each in left),
            "folders": folders(topology, past.wanted),
            "left": left,
            "waits_for": after.waits_for,
        }


def waiting(row: Mapping[str, Any]) -> str:
    """Return the reason, in a line, why a topology's horizon stays where the horizon is."""
    return f"{row['topology']}: txid {row['horizon'] + 1} stays; it waits for {row['waits_for']}"


def _row(topology: str, keep: Keep | None, before: int, horizon: int) -> dict[str, Any]:
    return {"topology": topology, "keep": describe_keep(keep), "horizon_before": before, "horizon": horizon}
