"""Domains with their victims as padded tensors, and what the victim kernels find in them.

Domains are handed over in chunks of one shape within a bound of memory; a chunk is filled up with
domains that take no pod. What a chunk holds does not change what is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from optimizer.kernels.victims import SetCosts, VictimTensors
    from optimizer.search.victim_sets import Narrowed, VictimSets

    Indices = NDArray[np.int64]
    Found = tuple[int, tuple[int, ...]]

__all__ = ["MAX_LISTED", "find_listable", "find_sets", "list_all_sets"]

MAX_LISTED: Final = 26
"""Victims of a domain up to which all their sets are looked at."""
MAX_TABLE: Final = 512
"""Nodes times resources of such a domain."""
HALVES: Final = ((9, 3), (9, 7), (11, 9), (13, 13))
"""(low, high) victims of a half; few shapes, so that few are compiled."""
MEMORY_LIMIT: Final = 256 << 20
"""Bytes of state at once; what is beyond goes in further chunks."""
CHUNK: Final = 8
"""Domains of one call of the enumeration."""
BUDGET_STEPS: Final = (0, 4, 16, 32)
SWAPS: Final = 64
"""Exchanges tried on each of the best sets of a domain."""
KEPT: Final = 16
"""Sets of a domain that are exchanged."""


@dataclass(frozen=True, slots=True)
class _Local:
    """One domain by itself: its nodes and victims numbered from 0, the dearest victim first."""

    domain: int
    nodes: Indices
    victims: Indices
    node: Indices
    """i64[E] of each pair, a local number."""
    victim: Indices
    amount: Indices
    need: int
    """Pods beyond what fits where nobody of these victims stands."""


def find_listable(sets: VictimSets, narrowed: Narrowed) -> NDArray[np.bool_]:
    """Tell of which domains all sets of victims can be looked at, bool[D]."""
    goes = narrowed.goes
    codes = sets.codes[sets.node[goes]]
    counts = []
    for other, width in ((sets.victim, len(sets.costs.words)), (sets.node, len(sets.codes))):
        pairs = np.unique(codes * width + other[goes])
        counts.append(np.bincount(pairs // max(width, 1), minlength=sets.num_domains))
    victims, nodes = counts
    listable: NDArray[np.bool_] = (victims <= MAX_LISTED) & (nodes * len(sets.request) <= MAX_TABLE)
    return listable


def _cut_out(sets: VictimSets, narrowed: Narrowed, domain: int) -> _Local:
    pairs = np.flatnonzero(narrowed.goes & (sets.codes[sets.node] == domain))
    nodes, node = np.unique(sets.node[pairs], return_inverse=True)
    victims, victim = np.unique(sets.victim[pairs], return_inverse=True)
    alone = sets.costs.price_alone()[victims]
    order = np.lexsort([victims, *(-alone[:, k] for k in reversed(range(alone.shape[1])))])
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    everywhere = int(sets.now[sets.codes == domain].sum())
    return _Local(
        domain,
        nodes,
        victims[order],
        node,
        position[victim],
        sets.amount[pairs],
        sets.need - (everywhere - int(sets.now[nodes].sum())),
    )


def find_sets(
    sets: VictimSets,
    narrowed: Narrowed,
    domains: Sequence[int],
    num_orders: int,
) -> list[Found]:
    """Find a cheap set of victims for each domain, by many orders and exchange.

    Args:
      sets: The problem.
      narrowed: Who may go.
      domains: Where to look.
      num_orders: Orders tried in each domain, drawn from its number.

    Returns:
      (domain, victims) of each domain where something fits, the cheapest first.
    """
    import jax

    from optimizer.kernels.runtime import prepare_jax
    from optimizer.kernels.victims import exchange, prefix_give_back

    prepare_jax()
    locals_ = [_cut_out(sets, narrowed, d) for d in domains]
    ranked: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []
    for chunk, fleet in _cut_into_chunks(sets, locals_, num_orders):
        num_domains, num_units = fleet.is_unit.shape
        kept = min(KEPT, num_orders)
        orders = np.tile(np.arange(num_units, dtype=np.int32), (num_domains, num_orders, 1))
        draws = np.zeros((num_domains, kept, SWAPS, 4), np.int32)
        for i, local in enumerate(chunk):
            rng = np.random.default_rng(local.domain)
            orders[i, :, : len(local.victims)] = _draw_orders(sets, local, num_orders, rng)
            draws[i] = rng.integers(0, 2**20, draws.shape[1:])
        device = jax.device_put(fleet)
        found = prefix_give_back(device, orders)
        words = np.asarray(found.words)
        keys = [words[:, :, k] for k in reversed(range(words.shape[2]))]
        best = np.lexsort(keys, axis=1)[:, :kept, None]
        taken = np.take_along_axis(np.asarray(found.taken), best, axis=1)
        better = exchange(device, taken, draws)
        taken, words = np.asarray(better.taken), np.asarray(better.words)
        fits = np.asarray(better.fits)
        for i, local in enumerate(chunk):
            cost, o = min((tuple(words[i, o].tolist()), o) for o in range(kept))
            if fits[i, o]:
                chosen = tuple(sorted(local.victims[taken[i, o, : len(local.victims)]].tolist()))
                ranked.append((cost, local.domain, chosen))
    return [(domain, chosen) for _, domain, chosen in sorted(ranked)]


def _draw_orders(
    sets: VictimSets, local: _Local, num_orders: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw orders of victims i32[O, V]: by cost for what they free, or node by node.

    Both are perturbed, the first of each kind least. Node by node means that whoever stands on a
    node that is cheap to clear goes together: single victims of full nodes free nothing.
    """
    alone = sets.costs.price_alone()[local.victims].astype(np.float64)
    cost = alone @ (2.0 ** (-30.0 * np.arange(alone.shape[1]))) + 1
    num_victims, num_nodes = len(local.victims), len(local.nodes)
    freed = (local.amount / sets.request).mean(axis=1)
    benefit = np.bincount(local.victim, freed, num_victims)
    spread = np.bincount(local.victim, minlength=num_victims)
    share = (cost / spread)[local.victim]
    gain = np.maximum(sets.cap - sets.now, 0)[local.nodes]
    price = np.bincount(local.node, share, num_nodes) / np.maximum(gain, 0.01)
    noise = np.linspace(0, 1.5, num_orders)[:, None]
    keys = np.log(cost / np.maximum(benefit, 0.01)) + noise * rng.normal(
        size=(num_orders, num_victims)
    )
    by_node = np.log(price) + noise * rng.normal(size=(num_orders, num_nodes))
    by_pair = np.full((num_victims, num_orders), np.inf)
    np.minimum.at(by_pair, local.victim, by_node.T[local.node])
    keys[1::2] = by_pair.T[1::2]
    return np.argsort(keys, axis=1, kind="stable").astype(np.int32)


def _cut_into_chunks(
    sets: VictimSets, locals_: Sequence[_Local], num_orders: int
) -> Iterator[tuple[list[_Local], VictimTensors]]:
    from optimizer.kernels.victims import VictimTensors

    # Powers of two: a scan over padding costs little, another compilation seconds.
    num_nodes = _widen(max(len(local.nodes) for local in locals_) + 1, 16)
    num_units = _widen(max(len(local.victims) for local in locals_), 16)
    most = _widen(max(int(np.bincount(local.victim).max()) for local in locals_), 4)
    num_resources = len(sets.request)
    each = 4 * (num_orders * (num_nodes * (num_resources + 1) + num_units))
    each += 4 * num_units * most * (num_resources + 1)
    size = min(max(MEMORY_LIMIT // each, 1), _widen(len(locals_), 8))
    for start in range(0, len(locals_), size):
        chunk = list(locals_[start : start + size])
        node_of = np.full((size, num_units, most), num_nodes - 1, np.int32)
        amount = np.zeros((size, num_units, most, num_resources), np.int32)
        spare = np.zeros((size, num_nodes, num_resources), np.int32)
        cap = np.zeros((size, num_nodes), np.int32)
        need = np.ones(size, np.int32)
        is_unit = np.zeros((size, num_units), bool)
        for i, local in enumerate(chunk):
            order = np.lexsort((local.node, local.victim))
            victim = local.victim[order]
            first = np.searchsorted(victim, np.arange(len(local.victims)))
            slot = np.arange(len(victim)) - first[victim]
            node_of[i, victim, slot] = local.node[order]
            amount[i, victim, slot] = local.amount[order]
            spare[i, : len(local.nodes)] = sets.spare[local.nodes]
            cap[i, : len(local.nodes)] = sets.cap[local.nodes]
            need[i] = local.need
            is_unit[i, : len(local.victims)] = True
        yield (
            chunk,
            VictimTensors(
                spare=spare,
                cap=cap,
                request=_repeat(sets.request, size),
                need=need,
                node_of=node_of,
                amount=amount,
                is_unit=is_unit,
                give_back=_repeat(np.arange(num_units), size),
                costs=_list_costs(sets, chunk, size, num_units),
            ),
        )


def list_all_sets(
    sets: VictimSets, narrowed: Narrowed, domains: Sequence[int], limit: tuple[int, ...] | None
) -> Found | None:
    """Look at all sets of victims of some domains, MAX_LISTED victims each at most.

    Args:
      sets: The problem.
      narrowed: Who may go.
      domains: Where to look, the most promising first.
      limit: Only what costs less counts.

    Returns:
      The best domain and its victims; None when nothing costs less than the limit, which is a
      proof as much as a set is.
    """
    from optimizer.kernels.runtime import bucket, prepare_jax
    from optimizer.kernels.victim_subsets import SubsetTensors, enumerate_subsets
    from optimizer.kernels.victims import WORST

    prepare_jax()
    locals_ = [_cut_out(sets, narrowed, d) for d in domains]
    num_words = len(sets.costs.rank_price)
    words: Any = np.array(limit or [WORST] * num_words, np.int32)
    best: Found | None = None
    num_resources = len(sets.request)
    for halves in HALVES:
        fits_in = [local for local in locals_ if _find_halves(local) == halves]
        if not fits_in:
            continue
        num_low, num_units = halves[0], sum(halves)
        num_nodes = bucket(max(len(local.nodes) for local in fits_in))
        for start in range(0, len(fits_in), CHUNK):
            chunk = fits_in[start : start + CHUNK]
            held = np.zeros((CHUNK, num_units, num_nodes, num_resources), np.int32)
            spare = np.zeros((CHUNK, num_nodes, num_resources), np.int32)
            cap = np.zeros((CHUNK, num_nodes), np.int32)
            need = np.ones(CHUNK, np.int32)
            for i, local in enumerate(chunk):
                # The dearest are in the high half: most of its subsets cost too much by themselves.
                held[i, num_units - 1 - local.victim, local.node] = local.amount
                spare[i, : len(local.nodes)] = sets.spare[local.nodes]
                cap[i, : len(local.nodes)] = sets.cap[local.nodes]
                need[i] = local.need
            costs = _list_costs(sets, chunk, CHUNK, num_units, is_reversed=True)
            found = enumerate_subsets(
                SubsetTensors(
                    spare=spare,
                    cap=cap,
                    request=_repeat(sets.request, CHUNK),
                    need=need,
                    low=held[:, :num_low],
                    high=held[:, num_low:],
                    costs=costs,
                ),
                words,
            )
            words = np.asarray(found.words)
            if int(found.domain) >= 0:
                local = chunk[int(found.domain)]
                bits = int(found.low) | int(found.high) << num_low
                chosen = [
                    int(v) for i, v in enumerate(local.victims) if bits >> (num_units - 1 - i) & 1
                ]
                best = local.domain, tuple(sorted(chosen))
    return best


def _find_halves(local: _Local) -> tuple[int, int]:
    return next(halves for halves in HALVES if len(local.victims) <= sum(halves))


def _list_costs(
    sets: VictimSets,
    chunk: Sequence[_Local],
    size: int,
    num_units: int,
    *,
    is_reversed: bool = False,
) -> SetCosts:
    """Return the costs of the victims of some domains, padded; reversed, the dearest come last."""
    from optimizer.kernels.victims import WORST, SetCosts

    costs = sets.costs
    num_budgets = next(n for n in BUDGET_STEPS if n >= len(costs.left))
    words = np.zeros((size, num_units, costs.words.shape[1]), np.int32)
    # Padding that cost nothing would double the sets that cost little; together it is below WORST.
    words[:, :, 0] = WORST // num_units
    rank = np.zeros((size, num_units), np.int32)
    covered = np.zeros((size, num_units, num_budgets), np.int32)
    left = np.zeros((size, num_budgets), np.int32)
    left[:, : len(costs.left)] = costs.left
    for i, local in enumerate(chunk):
        at = np.arange(len(local.victims))
        at = num_units - 1 - at if is_reversed else at
        words[i, at] = costs.words[local.victims]
        rank[i, at] = costs.rank[local.victims]
        covered[i, at, : len(costs.left)] = costs.covered[local.victims]
    return SetCosts(
        words=words,
        rank=rank,
        rank_price=_repeat(costs.rank_price, size),
        covered=covered,
        left=left,
        excess_price=_repeat(costs.excess_price, size),
        is_hard=np.full(size, costs.is_hard),
    )


def _widen(size: int, least: int) -> int:
    return max(least, 1 << (size - 1).bit_length())


def _repeat(row: Indices, size: int) -> NDArray[np.int32]:
    return np.tile(row.astype(np.int32), (size, 1))
