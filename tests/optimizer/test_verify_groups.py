"""Rules of the group forest: floors, refusals, domains, slices, exclusive domains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot
from plan_builders import broken_rules, make_plan

from optimizer.verify import verify_plan
from topology.model import Exclusive, Node, Phase, PodFlag, SliceTerm, Snapshot, TopologyTerm
from topology.plan import ChosenDomain, Move, PlacedPod

if TYPE_CHECKING:
    from topology.assemble import GroupRow, PodRow

BLOCK = "topo.example.com/block"


def place(snapshot: Snapshot, placed: dict[str, str], **fields: Any) -> list[str]:
    return broken_rules(verify_plan(snapshot, make_plan(snapshot, placed, **fields)))


def put(name: str, nodes: str | list[str], first: int = 0) -> dict[str, str]:
    """`name-0` … on nodes, which are listed or are "n" and one digit each."""
    names = [f"n{digit}" for digit in nodes] if isinstance(nodes, str) else nodes
    return {f"ml/{name}-{first + i}": node for i, node in enumerate(names)}


def fleet(racks: str = "1122") -> list[Node]:
    """Nodes n0, n1 …; a digit is the rack, blocks hold racks 1-2, 3-4; "-" is unlabelled."""
    return [
        make_node(f"n{i}")
        if r == "-"
        else make_node(f"n{i}", rack=r, labels={BLOCK: str((int(r) + 1) // 2)})
        for i, r in enumerate(racks)
    ]


@pytest.mark.parametrize(
    ("running", "pending", "min_count", "placed", "want"),
    [
        pytest.param(0, 4, 4, 3, ["floor"], id="room for 3 of 4"),
        pytest.param(0, 6, 4, 5, [], id="5 of 6, four are enough"),
        pytest.param(7, 1, 8, 1, [], id="one replacement"),
        pytest.param(3, 4, 8, 4, ["floor"], id="7 of 8 with all pending placed"),
        pytest.param(4, 2, 4, 1, [], id="extra pod beyond the floor"),
        pytest.param(0, 4, 4, 0, [], id="nothing placed breaks nothing"),
    ],
)
def test_floor(running: int, pending: int, min_count: int, placed: int, want: list[str]) -> None:
    snapshot = make_snapshot(
        fleet(),
        make_pods("run", running, group="ml/g", on="n0"),
        make_pods("new", pending, group="ml/g"),
        groups=[make_group("ml/g", min_count)],
    )
    assert place(snapshot, put("new", "1" * placed)) == want


@pytest.mark.parametrize(
    ("row", "want"),
    [
        pytest.param({"flags": PodFlag.TERMINATING, "phase": Phase.RUNNING}, ["floor"], id="ends"),
        pytest.param({"phase": Phase.SUCCEEDED}, ["floor"], id="succeeded"),
        pytest.param({"phase": Phase.PENDING}, [], id="bound, not started yet"),
    ],
)
def test_which_members_count(row: dict[str, Any], want: list[str]) -> None:
    old = make_pods("run", 1, group="ml/g", on="n0")
    for name, value in row.items():
        setattr(old[0], name, value)
    snapshot = make_snapshot(
        fleet(), old, make_pods("new", 1, group="ml/g"), groups=[make_group("ml/g", 2)]
    )
    assert place(snapshot, put("new", "1")) == want


def test_basic_group_takes_any_number() -> None:
    group = make_group("ml/g", 0, policy="basic", size=5)
    snapshot = make_snapshot(fleet(), make_pods("new", 5, group="ml/g"), groups=[group])
    assert place(snapshot, put("new", "01")) == []


@pytest.mark.parametrize(
    ("assume_gangs", "want"),
    [pytest.param(True, ["floor"], id="held to it"), pytest.param(False, [], id="not assumed")],
)
def test_inferred_floor(assume_gangs: bool, want: list[str]) -> None:
    group = make_group("ml/g", 3, is_inferred=True)
    snapshot = make_snapshot(fleet(), make_pods("new", 3, group="ml/g"), groups=[group])
    assert place(snapshot, put("new", "01"), assume_gangs=assume_gangs) == want


def composite(min_groups: int, **fields: Any) -> list[GroupRow]:
    """ml/c over ml/x, ml/y and ml/z, each a gang of two."""
    top = make_group("ml/c", 0, kind="composite", min_groups=min_groups, size=6, **fields)
    return [top, *(make_group(f"ml/{name}", 2, parent="ml/c") for name in "xyz")]


def children(names: str = "xyz") -> list[PodRow]:
    return [pod for name in names for pod in make_pods(name, 2, group=f"ml/{name}")]


@pytest.mark.parametrize(
    ("min_groups", "placed", "want"),
    [
        pytest.param(2, put("y", "01") | put("z", "23"), [], id="two of three suffice"),
        pytest.param(3, put("y", "01") | put("z", "23"), ["floor"], id="all three needed"),
        pytest.param(2, put("y", "01") | put("z", "2"), ["floor"], id="half a child"),
        pytest.param(1, put("y", "01") | put("z", "2"), ["floor"], id="half a child too many"),
        pytest.param(3, {}, [], id="nothing placed"),
    ],
)
def test_composite_floor(min_groups: int, placed: dict[str, str], want: list[str]) -> None:
    snapshot = make_snapshot(fleet(), children(), groups=composite(min_groups))
    assert place(snapshot, placed) == want


def test_running_child_counts_for_its_parent() -> None:
    running = make_pods("x", 2, group="ml/x", on=["n0", "n1"])
    snapshot = make_snapshot(fleet(), running, children("yz"), groups=composite(2))
    assert place(snapshot, put("y", "01")) == []


def test_empty_basic_child_does_not_count() -> None:
    groups = [
        make_group("ml/c", 0, kind="composite", min_groups=2),
        make_group("ml/x", 2, parent="ml/c"),
        make_group("ml/y", 0, parent="ml/c", policy="basic"),
    ]
    snapshot = make_snapshot(fleet(), children("xy"), groups=groups)
    assert place(snapshot, put("x", "01")) == ["floor"]
    assert place(snapshot, put("x", "01") | put("y", "2")) == []


def test_subgroup_floors() -> None:
    groups = [
        make_group("ml/g", 3, min_groups=2),
        make_group("ml/g#0", 1, parent="ml/g", kind="subgroup", name="0"),
        make_group("ml/g#1", 2, parent="ml/g", kind="subgroup", name="1"),
    ]
    rows = make_pods("a", 1, group="ml/g#0") + make_pods("b", 3, group="ml/g#1")
    snapshot = make_snapshot(fleet(), rows, groups=groups)
    assert place(snapshot, put("a", "0") | put("b", "01")) == []
    # Three pods in all, but the leader is not among them.
    assert place(snapshot, put("b", "012")) == ["floor"]


@pytest.mark.parametrize(
    ("blocked", "release", "want"),
    [
        pytest.param("two schedulers", "1.36", ["blocked"], id="any release"),
        pytest.param("1.37: two priorities", "1.37", ["blocked"], id="1.37 refuses"),
        pytest.param("1.37: two priorities", "1.36", [], id="1.36 does not"),
    ],
)
@pytest.mark.parametrize("where", ["ml/c", "ml/x"])
def test_blocked_group_gets_nothing(
    blocked: str, release: str, where: str, want: list[str]
) -> None:
    groups = [
        replace(row, group=replace(row.group, blocked=blocked)) if row.group.ref == where else row
        for row in composite(1)
    ]
    snapshot = make_snapshot(fleet(), children(), groups=groups)
    assert place(snapshot, put("x", "01"), release=release) == want


@pytest.mark.parametrize(
    ("racks", "running", "placed", "want"),
    [
        pytest.param("1122", [], "01", [], id="one rack"),
        pytest.param("1122", [], "02", ["topology"], id="two racks"),
        pytest.param("11-2", [], "22", ["topology"], id="unlabelled node"),
        pytest.param("1122", ["n0"], "11", [], id="rack of the survivor"),
        pytest.param("1122", ["n0"], "22", ["topology"], id="away from the survivor"),
        pytest.param("1122", ["n0", "n2"], "01", ["topology"], id="survivors in two racks"),
        pytest.param("1-12", ["n1"], "00", ["topology"], id="survivor on an unlabelled node"),
        pytest.param("1122", ["lost"], "00", ["topology"], id="survivor on an unknown node"),
        pytest.param("1122", ["n0", "n2"], "", [], id="broken before, nothing new"),
    ],
)
def test_required_rack(racks: str, running: list[str], placed: str, want: list[str]) -> None:
    snapshot = make_snapshot(
        fleet(racks),
        make_pods("run", len(running), group="ml/g", on=running),
        make_pods("new", 2, group="ml/g"),
        groups=[make_group("ml/g", 1, key=RACK)],
    )
    assert place(snapshot, put("new", placed)) == want


def test_preferred_rack_binds_nobody() -> None:
    group = make_group("ml/g", 2, topology=(TopologyTerm((RACK,), required=False),))
    snapshot = make_snapshot(fleet(), make_pods("new", 2, group="ml/g"), groups=[group])
    assert place(snapshot, put("new", "02")) == []


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param((RACK,), [], id="flat: equal values are one domain"),
        pytest.param((BLOCK, RACK), ["topology"], id="path: rack 1 of two blocks"),
    ],
)
def test_equal_rack_labels_in_two_blocks(path: tuple[str, ...], want: list[str]) -> None:
    nodes = [make_node(f"n{i}", rack="1", labels={BLOCK: str(i)}) for i in range(2)]
    group = make_group("ml/g", 2, topology=(TopologyTerm(path),))
    snapshot = make_snapshot(nodes, make_pods("new", 2, group="ml/g"), groups=[group])
    assert place(snapshot, put("new", "01")) == want


@pytest.mark.parametrize(
    ("placed", "want"),
    [
        pytest.param(put("x", "01") | put("y", "23"), [], id="racks differ inside one block"),
        pytest.param(put("x", "01") | put("y", "45"), ["topology"], id="two blocks"),
        pytest.param(put("x", "02") | put("y", "23"), ["topology"], id="child in two racks"),
        pytest.param(put("x", "01") | put("y", "01"), [], id="children share a rack"),
    ],
)
def test_nested_constraints(placed: dict[str, str], want: list[str]) -> None:
    groups = [
        make_group("ml/c", 0, kind="composite", min_groups=2, key=BLOCK),
        make_group("ml/x", 2, parent="ml/c", key=RACK),
        make_group("ml/y", 2, parent="ml/c", key=RACK),
    ]
    snapshot = make_snapshot(fleet("112233"), children("xy"), groups=groups)
    assert place(snapshot, placed) == want


@pytest.mark.parametrize(
    ("target", "want"),
    [
        pytest.param("n1", [], id="within the rack"),
        pytest.param("n2", ["topology"], id="out of the rack"),
    ],
)
def test_moves_keep_the_rack(target: str, want: list[str]) -> None:
    snapshot = make_snapshot(
        fleet(),
        make_pods("run", 2, group="ml/g", on="n0"),
        groups=[make_group("ml/g", 2, key=RACK)],
    )
    moves = [Move(1, 1, "ml/run-0", "n0", target, "live", "ml/g")]
    assert place(snapshot, {}, moves=moves) == want


@pytest.mark.parametrize(
    ("size", "running", "placed", "want"),
    [
        pytest.param(2, "", "0022", [], id="two and two"),
        pytest.param(2, "", "0002", ["slice"], id="three and one"),
        pytest.param(2, "", "0000", [], id="both runs in one rack"),
        pytest.param(3, "", "0002", [], id="a last run of one"),
        pytest.param(3, "", "0022", ["slice"], id="runs of three cut in two"),
        pytest.param(4, "", "0000", [], id="one run"),
        pytest.param(2, "0", "022", [], id="run of a survivor is filled up"),
        pytest.param(2, "0", "222", ["slice"], id="run of a survivor is torn"),
        pytest.param(2, "", "0044", ["slice"], id="unlabelled node"),
    ],
)
def test_slices(size: int, running: str, placed: str, want: list[str]) -> None:
    group = make_group("ml/g", 4, slices=(SliceTerm((RACK,), size),))
    snapshot = make_snapshot(
        fleet("1122-"),
        make_pods("run", len(running), group="ml/g", on=[f"n{digit}" for digit in running]),
        make_pods("new", len(placed), group="ml/g"),
        groups=[group],
    )
    assert place(snapshot, put("new", placed)) == want


@pytest.mark.parametrize(
    ("placed", "want"),
    [
        pytest.param("00224466", [], id="four in each block, two in each rack"),
        pytest.param("00112244", ["slice"], id="six and two"),
        pytest.param("00022444", ["slice"], id="racks of three"),
    ],
)
def test_nested_slices(placed: str, want: list[str]) -> None:
    slices = (SliceTerm((BLOCK,), 4), SliceTerm((BLOCK, RACK), 2))
    snapshot = make_snapshot(
        fleet("11223344"),
        make_pods("new", 8, group="ml/g"),
        groups=[make_group("ml/g", 8, slices=slices)],
    )
    assert place(snapshot, put("new", placed)) == want


def exclusive(ref: str, key: str | None, peers: str = "lws/ml") -> GroupRow:
    return make_group(ref, 1, exclusive=(Exclusive(peers, key),))


@pytest.mark.parametrize(
    ("groups", "placed", "want"),
    [
        pytest.param(
            [exclusive("ml/x", RACK), exclusive("ml/y", RACK)], "01", ["exclusive"], id="both keyed"
        ),
        pytest.param([exclusive("ml/x", RACK), exclusive("ml/y", RACK)], "02", [], id="two racks"),
        pytest.param(
            [exclusive("ml/x", RACK), exclusive("ml/y", None)],
            "01",
            ["exclusive"],
            id="one keyed, the other a plain member of the class",
        ),
        pytest.param(
            [exclusive("ml/x", None), exclusive("ml/y", None)], "01", [], id="nobody asks"
        ),
        pytest.param(
            [exclusive("ml/x", RACK), exclusive("ml/y", RACK, "lws/other")],
            "01",
            [],
            id="another class",
        ),
        pytest.param(
            [exclusive("ml/x", BLOCK), exclusive("ml/y", RACK)],
            "02",
            ["exclusive"],
            id="wider key of one",
        ),
        pytest.param([exclusive("ml/x", RACK), make_group("ml/y", 1)], "01", [], id="no member"),
    ],
)
@pytest.mark.parametrize("is_running", [True, False], ids=["first runs", "both new"])
def test_exclusive(groups: list[GroupRow], placed: str, want: list[str], is_running: bool) -> None:
    snapshot = make_snapshot(
        fleet(),
        make_pods("x", 1, group="ml/x", on=f"n{placed[0]}" if is_running else ""),
        make_pods("y", 1, group="ml/y"),
        groups=groups,
    )
    both = put("x", placed[0]) | put("y", placed[1])
    assert place(snapshot, put("y", placed[1]) if is_running else both) == want


def test_exclusive_domain_shared_before_is_not_the_plans_fault() -> None:
    snapshot = make_snapshot(
        fleet(),
        make_pods("x", 1, group="ml/x", on="n0"),
        make_pods("y", 1, group="ml/y", on="n1"),
        make_pods("z", 1, group="ml/z"),
        groups=[exclusive(f"ml/{name}", RACK) for name in "xyz"],
    )
    assert place(snapshot, put("z", "2")) == []
    assert place(snapshot, put("z", "1")) == ["exclusive"]


def test_chosen_domain_and_subgroup_of_a_pod() -> None:
    groups = [
        make_group("ml/g", 2),
        make_group("ml/g#0", 1, parent="ml/g", kind="subgroup", name="0", key=RACK),
        make_group("ml/g#1", 1, parent="ml/g", kind="subgroup", name="1", key=RACK),
    ]
    rows = [pod for i in "01" for pod in make_pods(f"s{i}", 1, group=f"ml/g#{i}")]
    snapshot = make_snapshot(fleet(), rows, groups=groups)
    plan = make_plan(snapshot, put("s0", "0") | put("s1", "2"))
    good = replace(
        plan.groups[0],
        domains=(ChosenDomain(RACK, "1", "0"), ChosenDomain(RACK, "2", "1")),
        pods=(PlacedPod("ml/s0-0", "n0", "0"), PlacedPod("ml/s1-0", "n2", "1")),
    )
    swapped = replace(
        good,
        domains=(ChosenDomain(RACK, "2", "0"), ChosenDomain(RACK, "1", "1")),
        pods=(PlacedPod("ml/s0-0", "n0", "1"), PlacedPod("ml/s1-0", "n2", "0")),
    )
    assert verify_plan(snapshot, replace(plan, groups=(good,))).violations == ()
    assert broken_rules(verify_plan(snapshot, replace(plan, groups=(swapped,)))) == [
        "domain",
        "subgroup",
    ]
