"""Victim-set kernels against all subsets, listed in plain NumPy with integers of unlimited size."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.kernels.runtime import TRACES, pad
from optimizer.kernels.victim_subsets import SubsetTensors, enumerate_subsets
from optimizer.kernels.victims import (
    WORST,
    SetCosts,
    VictimTensors,
    exchange,
    prefix_give_back,
)

LOW, HIGH, NODES, MOST_NODES, RESOURCES, BUDGETS, WORDS = 6, 4, 6, 4, 2, 2, 2
UNITS = LOW + HIGH


@dataclass
class Domain:
    """One domain, not padded: what each unit holds on every node, and what it costs."""

    spare: np.ndarray
    held: np.ndarray
    request: np.ndarray
    need: int
    words: np.ndarray
    rank: np.ndarray
    covered: np.ndarray
    left: np.ndarray
    is_hard: bool
    rank_price: tuple[int, int] = (40, 0)
    excess_price: tuple[int, int] = (0, 100)

    def fits(self, chosen: list[int]) -> bool:
        free = self.spare + self.held[chosen].sum(axis=0)
        pods = np.maximum(free // self.request, 0).min(axis=1).sum()
        return bool(pods >= self.need) and not (self.is_hard and self.excess(chosen))

    def excess(self, chosen: list[int]) -> int:
        return int(np.maximum(self.covered[chosen].sum(axis=0) - self.left, 0).sum())

    def cost(self, chosen: list[int]) -> tuple[int, ...]:
        rank = max((int(self.rank[v]) for v in chosen), default=0)
        words = self.words[chosen].sum(axis=0)
        return tuple(
            int(words[k]) + rank * self.rank_price[k] + self.excess(chosen) * self.excess_price[k]
            for k in range(WORDS)
        )

    def best(self) -> tuple[int, ...] | None:
        units = range(len(self.held))
        sets = (list(s) for n in range(len(units) + 1) for s in itertools.combinations(units, n))
        return min((self.cost(s) for s in sets if self.fits(s)), default=None)


def draw_domain(rng: np.random.Generator, units: int = 8, *, scale: int = 1) -> Domain:
    held = np.zeros((units, NODES - 1, RESOURCES), np.int64)
    for v in range(units):
        where = rng.choice(NODES - 1, int(rng.integers(1, MOST_NODES)), replace=False)
        held[v, where] = rng.integers(0, 5, (len(where), RESOURCES)) * scale
    request = rng.integers(1, 5, RESOURCES) * scale
    return Domain(
        spare=rng.integers(-1, 4, (NODES - 1, RESOURCES)) * scale - int(rng.integers(0, 2)),
        held=held,
        request=request - int(scale > 1) * int(rng.integers(0, 2)),
        need=int(rng.integers(1, 10)),
        words=rng.integers(0, 9, (units, WORDS)),
        rank=rng.integers(0, 4, units),
        covered=rng.integers(0, 2, (units, BUDGETS)),
        left=rng.integers(0, 3, BUDGETS),
        is_hard=bool(rng.random() < 0.3),
    )


def list_costs(domains: list[Domain], units: int) -> SetCosts:
    return SetCosts(
        words=np.stack([pad(d.words, (units, WORDS)) for d in domains]),
        rank=np.stack([pad(d.rank, (units,)) for d in domains]),
        rank_price=np.array([d.rank_price for d in domains], np.int32),
        covered=np.stack([pad(d.covered, (units, BUDGETS)) for d in domains]),
        left=np.stack([d.left for d in domains]).astype(np.int32),
        excess_price=np.array([d.excess_price for d in domains], np.int32),
        is_hard=np.array([d.is_hard for d in domains]),
    )


def make_subsets(domains: list[Domain], nodes: int = NODES) -> SubsetTensors:
    held = [pad(d.held, (UNITS, nodes, RESOURCES)) for d in domains]
    caps = [pad(np.full(NODES - 1, 99), (nodes,)) for d in domains]
    return SubsetTensors(
        spare=np.stack([pad(d.spare, (nodes, RESOURCES)) for d in domains]),
        cap=np.stack(caps),
        request=np.stack([d.request for d in domains]).astype(np.int32),
        need=np.array([d.need for d in domains], np.int32),
        low=np.stack([h[:LOW] for h in held]),
        high=np.stack([h[LOW:] for h in held]),
        costs=list_costs(domains, UNITS),
    )


def make_fleet(domains: list[Domain], units: int = UNITS) -> VictimTensors:
    node_of = np.full((len(domains), units, MOST_NODES), NODES - 1, np.int32)
    amount = np.zeros((len(domains), units, MOST_NODES, RESOURCES), np.int32)
    for i, domain in enumerate(domains):
        for v, held in enumerate(domain.held):
            where = np.flatnonzero(held.any(axis=1))
            node_of[i, v, : len(where)] = where
            amount[i, v, : len(where)] = held[where]
    is_unit = np.stack([np.arange(units) < len(d.held) for d in domains])
    return VictimTensors(
        spare=np.stack([pad(d.spare, (NODES, RESOURCES)) for d in domains]),
        cap=np.stack([pad(np.full(NODES - 1, 99), (NODES,)) for _ in domains]),
        request=np.stack([d.request for d in domains]).astype(np.int32),
        need=np.array([d.need for d in domains], np.int32),
        node_of=node_of,
        amount=amount,
        is_unit=is_unit,
        give_back=np.tile(np.arange(units, dtype=np.int32), (len(domains), 1)),
        costs=list_costs(domains, units),
    )


def draw_orders(rng: np.random.Generator, domains: int, orders: int, units: int) -> np.ndarray:
    table = np.tile(np.arange(units, dtype=np.int32), (domains, orders, 1))
    return rng.permuted(table, axis=2)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 300_001]))
def test_no_subset_is_cheaper_than_what_enumeration_finds(seed: int, scale: int) -> None:
    domain = draw_domain(np.random.default_rng(seed), scale=scale)
    found = enumerate_subsets(make_subsets([domain]), np.full(WORDS, WORST, np.int32))
    want_best = domain.best()
    if want_best is None:
        assert int(found.domain) == -1
        return
    bits = int(found.low) | int(found.high) << LOW
    chosen = [v for v in range(UNITS) if bits >> v & 1]
    assert max(chosen, default=0) < len(domain.held)
    assert domain.fits(chosen)
    assert domain.cost(chosen) == want_best
    assert tuple(np.asarray(found.words).tolist()) == want_best


def test_the_best_of_several_domains_below_a_limit() -> None:
    rng = np.random.default_rng(5)
    domains = [draw_domain(rng) for _ in range(8)]
    best = [d.best() for d in domains]
    want_best = min(b for b in best if b is not None)
    found = enumerate_subsets(make_subsets(domains), np.full(WORDS, WORST, np.int32))
    assert tuple(np.asarray(found.words).tolist()) == want_best
    assert best[int(found.domain)] == want_best
    # Nothing is cheaper than the best: the limit comes back, and no set.
    again = enumerate_subsets(make_subsets(domains), np.array(want_best, np.int32))
    assert int(again.domain) == -1
    assert tuple(np.asarray(again.words).tolist()) == want_best


@pytest.mark.parametrize("nodes", [NODES, 9])
def test_padding_changes_nothing(nodes: int) -> None:
    rng = np.random.default_rng(11)
    domains = [draw_domain(rng) for _ in range(6)]
    limit = np.full(WORDS, WORST, np.int32)
    plain = enumerate_subsets(make_subsets(domains), limit)
    padded = enumerate_subsets(make_subsets(domains, nodes), limit)
    one_by_one = [enumerate_subsets(make_subsets([d]), limit).words for d in domains]
    assert np.array_equal(plain.words, padded.words)
    assert (int(plain.domain), int(plain.low), int(plain.high)) == (
        int(padded.domain),
        int(padded.low),
        int(padded.high),
    )
    assert tuple(np.asarray(plain.words).tolist()) == min(
        tuple(np.asarray(words).tolist()) for words in one_by_one
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_orders_and_exchanges_are_sound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    domains = [draw_domain(rng) for _ in range(3)]
    fleet = make_fleet(domains)
    found = prefix_give_back(fleet, draw_orders(rng, 3, 8, UNITS))
    draws = rng.integers(0, 2**20, (3, 8, 40, 4)).astype(np.int32)
    better = exchange(fleet, found.taken, draws)
    for i, domain in enumerate(domains):
        want_best = domain.best()
        for o in range(8):
            chosen = np.flatnonzero(np.asarray(found.taken)[i, o]).tolist()
            after = np.flatnonzero(np.asarray(better.taken)[i, o]).tolist()
            if not bool(found.fits[i, o]):
                # Only a hard budget keeps an order from what all victims together make room for.
                everybody = list(range(len(domain.held)))
                assert domain.is_hard or not domain.fits(everybody)
                continue
            assert want_best is not None
            assert domain.fits(chosen)
            cost = tuple(np.asarray(found.words)[i, o].tolist())
            assert cost == domain.cost(chosen)
            assert want_best <= cost
            # Nobody can be given back alone.
            assert not any(domain.fits([v for v in chosen if v != w]) for w in chosen)
            assert domain.fits(after)
            assert tuple(np.asarray(better.words)[i, o].tolist()) == domain.cost(after)
            assert want_best <= domain.cost(after) <= cost


def test_an_order_is_followed_and_the_dearest_given_back() -> None:
    # One node of 4 GPUs, full; a pod of 4 needs a and b gone, or c: a, b, c goes, then c is kept.
    domain = Domain(
        spare=np.zeros((1, 1), np.int64),
        held=np.array([[[2]], [[2]], [[4]]]),
        request=np.array([4]),
        need=1,
        words=np.array([[1, 0], [3, 0], [9, 0]]),
        rank=np.zeros(3, np.int64),
        covered=np.zeros((3, BUDGETS), np.int64),
        left=np.zeros(BUDGETS, np.int64),
        is_hard=False,
    )
    fleet = VictimTensors(
        spare=np.zeros((1, 2, 1), np.int32),
        cap=np.array([[4, 0]], np.int32),
        request=np.array([[4]], np.int32),
        need=np.array([1], np.int32),
        node_of=np.zeros((1, 3, 1), np.int32),
        amount=domain.held.reshape(1, 3, 1, 1).astype(np.int32),
        is_unit=np.ones((1, 3), bool),
        give_back=np.array([[2, 1, 0]], np.int32),
        costs=list_costs([domain], 3),
    )
    orders = np.array([[[0, 2, 1], [1, 0, 2]]], np.int32)
    found = prefix_give_back(fleet, orders)
    want_taken = [[False, False, True], [True, True, False]]
    assert np.asarray(found.taken)[0].tolist() == want_taken
    assert np.asarray(found.words)[0].tolist() == [[9, 0], [4, 0]]
    # One exchange leads from the dear set to the cheap one.
    rng = np.random.default_rng(0)
    better = exchange(fleet, found.taken, rng.integers(0, 2**20, (1, 2, 30, 4)).astype(np.int32))
    assert np.asarray(better.words)[0].tolist() == [[4, 0], [4, 0]]


def test_amounts_near_multiples_are_divided_exactly() -> None:
    # Quotients of float32 are off by one around these multiples; the cap of int32 is 2**24.
    request = np.arange(1, 4000, 3)
    for offset in (-1, 0, 1):
        free = np.minimum((2**24 - 2) // request * request + offset, 2**24 - 1)
        for start in range(0, len(request), 64):
            part = slice(start, start + 64)
            domains = [
                Domain(
                    spare=np.zeros((1, 1), np.int64),
                    held=np.array([[[int(f)]]]),
                    request=np.array([int(r)]),
                    need=int(f // r) + extra,
                    words=np.ones((1, WORDS), np.int64),
                    rank=np.zeros(1, np.int64),
                    covered=np.zeros((1, BUDGETS), np.int64),
                    left=np.zeros(BUDGETS, np.int64),
                    is_hard=False,
                )
                for f, r in zip(free[part], request[part], strict=True)
                for extra in (0, 1)
            ]
            cap = np.full((len(domains), 1), 2**24, np.int32)
            fleet = SubsetTensors(
                spare=np.zeros((len(domains), 1, 1), np.int32),
                cap=cap,
                request=np.stack([d.request for d in domains]).astype(np.int32),
                need=np.array([d.need for d in domains], np.int32),
                low=np.stack([d.held for d in domains]).astype(np.int32),
                high=np.zeros((len(domains), 1, 1, 1), np.int32),
                costs=list_costs(domains, 2),
            )
            for i, domain in enumerate(domains):
                one = _pick(fleet, i)
                found = enumerate_subsets(one, np.full(WORDS, WORST, np.int32))
                assert (int(found.domain) == 0) == domain.fits([0])


def _pick(fleet: SubsetTensors, i: int) -> SubsetTensors:
    import jax

    return jax.tree.map(lambda leaf: leaf[i : i + 1], fleet)


def test_like_shapes_compile_nothing() -> None:
    rng = np.random.default_rng(3)
    limit = np.full(WORDS, WORST, np.int32)
    enumerate_subsets(make_subsets([draw_domain(rng, 8)]), limit)
    before = TRACES.total()
    enumerate_subsets(make_subsets([draw_domain(rng, 7)]), limit)
    assert TRACES.total() == before
