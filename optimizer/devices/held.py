"""What victims hold of devices through claims that count as released once they are gone.

Source: ours; `optimizer.devices.reclaim` says which claims those are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optimizer.devices.columns import CLAIMS_PREFIX, DeviceColumns, is_device_resource
from optimizer.devices.ledger import DeviceLedger
from optimizer.devices.reclaim import find_releasing
from optimizer.devices.state import list_held

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.victims import Victim
    from topology.model import Snapshot

__all__ = ["HeldClaims", "find_held_claims"]


class HeldClaims(NamedTuple):
    """Amounts that claims take while somebody who holds them stays; axis C (node, holder)."""

    holders: tuple[tuple[int, int], ...]
    """(C,) (node, victim); victims from V on stand for the entries of `joint`."""
    amounts: NDArray[np.int64]
    """i64[C, R] canonical units."""
    joint: tuple[frozenset[int], ...]
    """Victims that share a claim, which is released when all of them go."""
    is_exact: bool
    """What claims take adds up: whole devices that are merely counted."""


def find_held_claims(
    snapshot: Snapshot,
    without: Snapshot,
    resources: Sequence[str],
    free: NDArray[np.int64],
    victims: Sequence[Victim],
    reclaim: str,
    placed: Mapping[int, int],
) -> HeldClaims:
    """Return what the claims of possible victims keep from others on every node.

    Args:
      snapshot: The fleet with the victims.
      without: The same without them, their claims released.
      resources: (R,) of the problem.
      free: i64[N, R] of `without`.
      victims: Who may go.
      reclaim: `Request.dra_reclaim`.
      placed: Pod -> node of pods that count as running.
    """
    devices = [r for r, name in enumerate(resources) if is_device_resource(name)]
    none = HeldClaims((), np.zeros((0, len(resources)), np.int64), (), True)
    releasing = find_releasing(snapshot, reclaim) if devices else {}
    if not releasing:
        return none
    victim_of = {p: v for v, victim in enumerate(victims) for p in victim.pods}
    ledger = DeviceLedger(without)
    for pod in sorted(placed):
        ledger.add({pod: placed[pod]})
    columns = DeviceColumns(without)
    table = snapshot.devices
    joint: list[frozenset[int]] = []
    rows: dict[tuple[int, int], NDArray[np.int64]] = {}
    is_exact = not any(resources[r].startswith(CLAIMS_PREFIX) for r in devices)
    for c, users in sorted(releasing.items()):
        if not all(p in victim_of for p in users):
            continue
        holders = frozenset(victim_of[p] for p in users)
        if len(holders) == 1:
            (holder,) = holders
        else:
            if holders not in joint:
                joint.append(holders)
            holder = len(victims) + joint.index(holders)
        grants = list_held(table.claims[c])
        nodes = {n for g in grants for n in table.reaches[table.reach[g.device]]}
        is_exact &= not any(table.kinds[table.kind[g.device]].counters for g in grants)
        ledger.state.take(grants)
        for n in sorted(nodes):
            row = rows.setdefault((n, holder), np.zeros(len(resources), np.int64))
            for r in devices:
                row[r] += free[n, r] - columns.count_on(resources[r], ledger.state, n)
        ledger.state.give_back(grants)
    rows = {key: row for key, row in rows.items() if row.any()}
    amounts = np.array([rows[key] for key in rows], np.int64).reshape(len(rows), len(resources))
    return HeldClaims(tuple(rows), amounts, tuple(joint), is_exact)
