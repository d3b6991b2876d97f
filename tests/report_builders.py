"""A small answer with something of everything, for tests of reports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from plan_builders import make_plan

from topology.model import ObjectError
from topology.plan import Bound, Cause, ChosenDomain, Move, Plan, Verification, Violation

if TYPE_CHECKING:
    from topology.model import Snapshot


def make_fleet(prefix: str = "") -> Snapshot:
    """Four nodes in two racks; one gang runs, one waits, one waits in vain."""
    two = make_spec(gpus=2)
    return make_snapshot(
        [make_node(f"{prefix}n{i}", gpus=4, rack=f"{prefix}r{i // 2}") for i in range(4)],
        make_pods(f"{prefix}old", 2, group=f"ml/{prefix}old", spec=two, on=f"{prefix}n0"),
        make_pods(f"{prefix}mover", 1, on=f"{prefix}n3"),
        make_pods(f"{prefix}new", 2, group=f"ml/{prefix}new", spec=two),
        make_pods(f"{prefix}late", 1, group=f"ml/{prefix}late"),
        groups=[
            make_group(f"ml/{prefix}old", 2, priority=1),
            make_group(f"ml/{prefix}new", 2, priority=9, key=RACK),
            make_group(f"ml/{prefix}late", 1),
        ],
    )


def make_full_plan(snapshot: Snapshot, prefix: str = "") -> Plan:
    """A plan with something of everything."""
    plan = make_plan(
        snapshot,
        {f"ml/{prefix}new-0": f"{prefix}n0", f"ml/{prefix}new-1": f"{prefix}n0"},
        victims={f"ml/{prefix}old-{i}": f"ml/{prefix}new" for i in range(2)},
        moves=[Move(1, 1, f"ml/{prefix}mover-0", f"{prefix}n3", f"{prefix}n2", "restart")],
        criteria={"gpusPlaced": 4, "victimPods": 2, "victimUnits": 1, "movedGpus": 1},
        command="repack",
    )
    groups = [
        replace(
            group,
            cause=None if group.pods else Cause("busy", f"{prefix} too little is free"),
            domains=(ChosenDomain(RACK, f"{prefix}r0"),) if group.pods else (),
        )
        for group in plan.groups
    ]
    evictions = [replace(e, group=f"ml/{prefix}old") for e in plan.evictions]
    return replace(
        plan,
        groups=tuple(groups),
        evictions=tuple(evictions),
        bound=Bound("gpusPlaced", 5, 0.25, "bound"),
        conditional=((f"ml/{prefix}new", f"{prefix} volume"),),
        warnings=(f"{prefix} warning",),
        errors=(ObjectError(f"ml/{prefix}bad", "Pod", f"spec.{prefix}", f"{prefix} is wrong"),),
        verification=Verification(7, (Violation("capacity", f"{prefix}n0", "2 free", prefix),)),
    )
