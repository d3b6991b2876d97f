"""A mixed-integer model put together from arrays, solved by HiGHS, level after level.

Limits are nodes of the search tree, never seconds, so that answers repeat.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["MipModel", "MipResult"]

MERGE_LIMIT = 1e6
"""Levels are folded into one objective while the folded range stays far below 2**53."""

_INFEASIBLE: Final = 2
"""`status` of scipy's `milp`."""


class MipResult(NamedTuple):
    """The best values found, and what is known about them."""

    values: Floats | None
    """f64[variables], integers exact; None when nothing feasible was found."""
    proven: int
    """Number of leading levels whose value is optimal."""
    bounds: tuple[float, ...]
    """What no solution can exceed in each level, given those before it; inf where unknown."""
    is_infeasible: bool = False
    """Proven to have no solution at all."""


class _Solved(NamedTuple):
    """What one call of HiGHS said."""

    values: Floats | None
    bound: float
    is_final: bool
    """The values are optimal, or it is proven that there are none."""


@contextlib.contextmanager
def _stdout_to_nowhere() -> Iterator[None]:
    """Keep HiGHS's stray prints out of the answer on standard output."""
    try:
        sys.stdout.flush()
        saved = os.dup(1)
    except (OSError, ValueError, AttributeError):
        yield
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    libc = ctypes.CDLL(None) if os.name == "posix" else None
    try:
        if libc is not None:
            libc.fflush(None)
        os.dup2(sink, 1)
        yield
    finally:
        if libc is not None:
            libc.fflush(None)
        os.dup2(saved, 1)
        os.close(saved)
        os.close(sink)


@dataclass(slots=True)
class MipModel:
    """Variables are numbered in the order they are added; every row is `low <= a x <= up`."""

    _upper: list[float] = field(default_factory=list)
    _integer: list[NDArray[np.uint8]] = field(default_factory=list)
    _rows: list[NDArray[np.int64]] = field(default_factory=list)
    _cols: list[NDArray[np.int64]] = field(default_factory=list)
    _data: list[Floats] = field(default_factory=list)
    _row_low: list[float] = field(default_factory=list)
    _row_up: list[float] = field(default_factory=list)
    num_variables: int = 0

    def add_variables(self, upper: ArrayLike, *, integer: bool = True) -> NDArray[np.int64]:
        """Add variables between 0 and `upper`; return their numbers."""
        up = np.atleast_1d(np.asarray(upper, np.float64))
        start = self.num_variables
        self.num_variables += len(up)
        self._upper.extend(up.tolist())
        self._integer.append(np.full(len(up), integer, np.uint8))
        return np.arange(start, self.num_variables)

    def add_row(
        self,
        columns: ArrayLike,
        coefficients: ArrayLike,
        low: float = -np.inf,
        up: float = np.inf,
    ) -> None:
        """Add one row; a scalar coefficient holds for all its columns."""
        cols = np.atleast_1d(np.asarray(columns, np.int64))
        self._rows.append(np.full(len(cols), len(self._row_low), np.int64))
        self._cols.append(cols)
        self._data.append(np.broadcast_to(np.asarray(coefficients, np.float64), cols.shape).copy())
        self._row_low.append(low)
        self._row_up.append(up)

    def count_at_most(self, columns: ArrayLike) -> int:
        """Return the sum of the upper limits of variables: the tightest safe big number."""
        cols = np.asarray(columns, np.int64)
        return int(sum(self._upper[c] for c in cols.tolist()))

    def solve(
        self,
        objectives: Sequence[Floats],
        spans: Sequence[int],
        *,
        node_limit: int,
        relaxed: bool = False,
        apart: Collection[int] = (),
    ) -> MipResult:
        """Maximise each objective in turn, holding the values of those before.

        Args:
          objectives: f64[variables] each, integer coefficients.
          spans: For each objective, more than its values can differ by.
          node_limit: Branch-and-bound nodes for each solve.
          relaxed: Drop integrality (a bound); values are then fractions.
          apart: Levels that get a solve of their own, however well they could share one.
        """
        values: Floats | None = None
        proven = 0
        still_proven = True
        bounds: list[float] = []
        held: list[tuple[Floats, float]] = []
        upper = np.array(self._upper)
        # With fractions, a level may exceed what whole numbers reach: one level at a time then, and
        # no more than whole numbers can reach is asked of the levels after.
        whole = not relaxed and all(kind.all() for kind in self._integer)
        for folded, parts, step in _merge(objectives, spans, apart, fold=whole):
            if values is not None and (folded <= 0).all() and abs(folded @ values) < 0.5:
                # A cost of nothing cannot be beaten.
                found = _Solved(values, 0.0, True)
            else:
                found = self._solve_one(folded, held, upper, node_limit, relaxed)
            if found.values is None:
                return MipResult(values, proven, tuple(bounds), found.is_final and values is None)
            if whole and any(row @ found.values < value - 0.5 for row, value in held):
                # Fractions too small for HiGHS to see, times a large coefficient, are not.
                return MipResult(values, proven, tuple(bounds))
            values = found.values
            reached = float(folded @ values)
            still_proven = still_proven and found.is_final
            for part in parts:
                value = float(part @ values)
                # A folded bound says nothing about one of its levels alone.
                limit = found.bound * step if len(parts) == 1 else np.inf
                bounds.append(value if still_proven else limit)
                proven += still_proven
            held.append((folded, float(np.round(reached) if whole else np.floor(reached + 1e-6))))
        return MipResult(values, proven, tuple(bounds))

    def _solve_one(
        self,
        objective: Floats,
        held: Sequence[tuple[Floats, float]],
        upper: Floats,
        node_limit: int,
        relaxed: bool,
    ) -> _Solved:
        if self.num_variables == 0:
            return _Solved(np.zeros(0), 0.0, True)
        constraints = []
        if self._rows:
            entries = np.concatenate(self._data)
            places = (np.concatenate(self._rows), np.concatenate(self._cols))
            matrix = csr_array((entries, places), shape=(len(self._row_low), self.num_variables))
            low, up = np.array(self._row_low), np.array(self._row_up)
            constraints.append(LinearConstraint(matrix, low, up))
        constraints += [
            LinearConstraint(row.reshape(1, -1), value - _find_slack(value, relaxed), np.inf)
            for row, value in held
        ]
        integrality = np.concatenate(self._integer)
        with _stdout_to_nowhere():
            result = milp(
                -objective,
                constraints=constraints,
                bounds=Bounds(0, upper),
                integrality=np.zeros_like(integrality) if relaxed else integrality,
                options={"node_limit": node_limit, "mip_rel_gap": 0.0},
            )
        if result.x is None:
            return _Solved(None, np.inf, result.status == _INFEASIBLE)
        values = np.asarray(result.x, np.float64)
        if not relaxed:
            values = np.where(integrality == 1, np.round(values), values)
            bound = getattr(result, "mip_dual_bound", None)
            limit = np.inf if bound is None else -float(bound)
        else:
            limit = float(objective @ values)
        return _Solved(values, limit, result.status == 0)


def _find_slack(value: float, relaxed: bool) -> float:
    """Return what a level may fall short of its value while those after it are solved.

    Values of 10 digits (seconds of work) are beyond HiGHS's absolute tolerance: rounding alone
    would make them infeasible. Whole numbers less than 0.5 apart are equal.
    """
    return 1e-3 if relaxed else min(max(1e-6, abs(value) * 1e-11), 0.4)


def _merge(
    objectives: Sequence[Floats], spans: Sequence[int], apart: Collection[int], *, fold: bool
) -> list[tuple[Floats, list[Floats], int]]:
    """Fold neighbouring levels into one where the weights are safe and cannot overturn an order.

    Returns:
      For each fold the objective, its levels, and the common step by which a single level was
      divided.
    """
    groups: list[tuple[Floats, list[Floats], int]] = []
    scale = 1.0
    for level in reversed(range(len(objectives))):
        objective, span = objectives[level], spans[level]
        used = objective[objective != 0].astype(np.int64)
        divisor = int(np.gcd.reduce(np.abs(used))) if used.size else 1
        steps = span / divisor + 1.0
        shares = fold and level not in apart and level + 1 not in apart
        if groups and shares and scale * steps <= MERGE_LIMIT:
            folded, parts, _ = groups[-1]
            groups[-1] = (folded + scale * (objective / divisor), [objective, *parts], 1)
            scale *= steps
        else:
            groups.append((objective / divisor, [objective], divisor))
            scale = steps
    return groups[::-1]
