"""Slices: the pods of a group in runs of a size, each run whole in one domain of every level.

Source: Kueue pod set slices (`podset-slice-required-topology`, `podset-slice-size`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.fills import Fill, fill_fullest, order_classes, split_by_domain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState
    from optimizer.units import TreeNode, Unit

    Indices = NDArray[np.int64]

__all__ = ["fill_slices"]


def fill_slices(state: FleetState, unit: Unit, at: int, nodes: Indices) -> list[Fill]:
    """Place whole runs, each in one domain of every slice level, then what remains.

    Runs that running members began come first. What would leave two runs short is given back.
    """
    node = unit.tree[at]
    column, size = node.slices[0]
    codes = state.problem.columns[column].codes[nodes]
    tasks = order_classes(state, unit, node.tasks)
    left = {t: unit.tasks[t].count for t in tasks}
    begun = [
        (size - count % size, nodes[codes == domain])
        for domain, count in sorted(node.standing[0].items())
        if count % size
    ]
    fills: list[Fill] = []
    sound, mark = 0, state.mark()
    for wanted, where in (*begun, *[(size, nodes)] * sum(left.values())):
        need = _draw(left, wanted)
        run = _place_run(state, unit, need, node.slices, where) if need else None
        if run is None:
            continue
        for t, count in need.items():
            left[t] -= count
        fills += run
        if _has_whole_runs(state, node, fills):
            sound, mark = len(fills), state.mark()
    state.undo(mark)
    return fills[:sound]


def _has_whole_runs(state: FleetState, node: TreeNode, fills: list[Fill]) -> bool:
    """Tell whether at most one domain of each slice level holds a run that is short."""
    for (column, size), standing in zip(node.slices, node.standing, strict=True):
        codes = state.problem.columns[column].codes
        counts = dict(standing)
        for fill in fills:
            for domain, count in zip(codes[fill.nodes].tolist(), fill.counts, strict=True):
                counts[domain] = counts.get(domain, 0) + int(count)
        if sum(count % size > 0 for count in counts.values()) > 1:
            return False
    return True


def _place_run(
    state: FleetState,
    unit: Unit,
    need: dict[int, int],
    levels: tuple[tuple[int, int], ...],
    nodes: Indices,
) -> list[Fill] | None:
    """Place all pods of one run (task -> pods) in one domain of each level, or none."""
    mark = state.mark()
    fills: list[Fill] = []
    if not levels:
        for t, count in need.items():
            fill = fill_fullest(state, unit, t, count, nodes)
            if fill is None or int(fill.counts.sum()) < count:
                state.undo(mark)
                return None
            fills.append(fill)
        return fills
    column, _ = levels[0]
    total = sum(need.values())
    inner = levels[1][1] if len(levels) > 1 else total
    ranked = []
    for i, part in enumerate(parts := split_by_domain(state, nodes, column)):
        room = {t: int(state.fits(unit.tasks[t].pod_class)[part].sum()) for t in need}
        if all(room[t] >= count for t, count in need.items()):
            ranked.append((sum(room.values()), i))
    for _, i in sorted(ranked):
        left = dict(need)
        while chunk := _draw(left, inner):
            run = _place_run(state, unit, chunk, levels[1:], parts[i])
            if run is None:
                break
            fills += run
            for t, count in chunk.items():
                left[t] -= count
        else:
            return fills
        state.undo(mark)
        fills = []
    return None


def _draw(left: dict[int, int], count: int) -> dict[int, int]:
    """Return the next `count` pods of what is left (task -> pods), fewer where less is left."""
    drawn: dict[int, int] = {}
    for t, available in left.items():
        take = min(available, count - sum(drawn.values()))
        if take > 0:
            drawn[t] = take
    return drawn
