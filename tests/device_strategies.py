"""Device tables of one node and claims for them, small enough for brute force."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from topology.devices import (
    ALL_DEVICES,
    Capacity,
    Counter,
    DeviceConstraint,
    DeviceFilter,
    DeviceKind,
    DevicePool,
    DeviceRequest,
    DeviceTable,
    RequestChoice,
)
from topology.model import ClaimNeed
from topology.taints import Taint, Toleration

__all__ = ["SLICES", "make_table", "needs", "several_needs", "tables"]

SLICES = "slices"


def make_table(*kinds: DeviceKind, counters: dict[str, int] | None = None) -> DeviceTable:
    """One device of each kind, d0, d1 …, all on node 0."""
    distinct = list(dict.fromkeys(kinds))
    offered = tuple(Counter(s, SLICES, amount) for s, amount in sorted((counters or {}).items()))
    return DeviceTable(
        filters=(DeviceFilter("a"), DeviceFilter("b")),
        pools=(DevicePool("driver", "pool", True, offered),),
        kinds=tuple(distinct),
        reaches=((0,),),
        names=tuple(f"d{i}" for i in range(len(kinds))),
        pool=(0,) * len(kinds),
        kind=tuple(distinct.index(kind) for kind in kinds),
        reach=(0,) * len(kinds),
    )


@st.composite
def tables(draw: st.DrawFn) -> DeviceTable:
    kinds = []
    for _ in range(draw(st.integers(1, 5))):
        shape = draw(st.sampled_from(["plain", "counters", "shared", "root", "tainted"]))
        filters = draw(st.sampled_from([(0,), (1,), (0, 1)]))
        root = draw(st.sampled_from(["one", "two"]))
        extra: dict[str, Any] = {}
        if shape == "counters":
            extra["counters"] = (
                Counter(draw(st.sampled_from(["s", "t"])), SLICES, draw(st.integers(1, 3))),
            )
        elif shape == "shared":
            extra |= {
                "capacity": (
                    Capacity("m", draw(st.integers(2, 6)), draw(st.sampled_from([None, 2]))),
                ),
                "is_shared": True,
            }
        elif shape == "tainted":
            extra["taints"] = (Taint("t"),)
        if shape == "root" or draw(st.booleans()):
            extra["attributes"] = (("x/root", f"string:{root}"),)
        kinds.append(DeviceKind(filters, **extra))
    return make_table(*kinds, counters={"s": draw(st.integers(1, 5)), "t": 3})


@st.composite
def needs(draw: st.DrawFn) -> ClaimNeed:
    choices = []
    for i in range(draw(st.integers(1, 2))):
        alternatives = []
        for j in range(draw(st.sampled_from([1, 1, 2]))):
            tolerations = (Toleration("t", "Exists"),) if draw(st.booleans()) else ()
            alternatives.append(
                DeviceRequest(
                    f"r{i}/{j}",
                    draw(st.integers(0, 1)),
                    draw(st.sampled_from([1, 1, 2, ALL_DEVICES])),
                    draw(st.sampled_from([False, False, False, True])),
                    tolerations,
                )
            )
        choices.append(RequestChoice(f"r{i}", tuple(alternatives)))
    constraints = draw(
        st.sampled_from(
            [
                (),
                (),
                (DeviceConstraint("x/root"),),
                (DeviceConstraint("x/root", is_distinct=True),),
                (DeviceConstraint("x/root", ("r0",)),),
            ]
        )
    )
    return ClaimNeed("c", requests=tuple(choices), constraints=constraints)


@st.composite
def several_needs(draw: st.DrawFn) -> list[ClaimNeed]:
    """Up to three claims, some of them alike."""
    first = draw(needs())
    return [first, *draw(st.lists(st.just(first) | needs(), max_size=2))]
