"""Plan document -> Plan and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topology.errors import RequestError
from topology.model import ObjectError
from topology.plan import (
    Bound,
    Cause,
    ChosenDomain,
    Eviction,
    GroupPlan,
    Move,
    PlacedDevice,
    PlacedPod,
    Plan,
    Request,
    Verification,
    Violation,
)
from topology.plan_json import plan_from_dict

PLAN = Plan(
    Request("preempt", ("ml/a",), ("max:priority",), 3, "quick", True, "1.36"),
    {"digest": "sha256:1", "release": "1.36", "nodes": 2, "pods": 4, "groups": 1},
    groups=(
        GroupPlan(
            "ml/a",
            "scheduling.k8s.io/v1beta1/PodGroup",
            "gang",
            1,
            10,
            "placed",
            domains=(ChosenDomain("rack", "r1", "0"),),
            pods=(
                PlacedPod(
                    "ml/a-0",
                    "n1",
                    "0",
                    "leader",
                    (PlacedDevice("gpus", "r/big", "gpu.example.com", "n1", "gpu-0"),),
                ),
                PlacedPod("ml/a-1", "n1"),
            ),
            pending_pods=("ml/a-2",),
            composite="ml/c",
        ),
        GroupPlan(
            "ml/b", "v1/Pod", "basic", 1, 0, "notPlaced", Cause("busy", "no room", {"free": 1})
        ),
    ),
    evictions=(Eviction("ml/x-0", "n1", "ml/x", "preemption", "ml/a"), Eviction("ml/y", "n2")),
    moves=(Move(1, 1, "ml/z", "n1", "n2", "live"),),
    criteria={"podsPlaced": 2},
    bound=Bound("gpusPlaced", 64, 0.0, "optimal"),
    conditional=(("ml/a", "a volume"),),
    warnings=("old",),
    errors=(ObjectError("ml/bad", "PodGroup", "spec", "both policies; keep one"),),
    verification=Verification(9, (Violation("floor", "ml/a", "4", "3"),)),
)


def document() -> dict[str, Any]:
    """PLAN as it comes back from a file."""
    return json.loads(json.dumps(PLAN.to_dict()))


def test_round_trip() -> None:
    assert plan_from_dict(document()) == PLAN
    assert plan_from_dict(document()).to_dict() == PLAN.to_dict()


def test_smallest_plan() -> None:
    plan = Plan(Request(), {"release": "1.37"})
    assert plan_from_dict(plan.to_dict()) == plan


def test_unknown_keys_are_let_pass() -> None:
    assert plan_from_dict(document() | {"later": 1}) == PLAN


def test_assumed_gangs_may_be_stated() -> None:
    broken = document()
    broken["request"]["assumeGangs"] = False
    assert not plan_from_dict(broken).request.assume_gangs


def test_budgets_may_be_hard() -> None:
    hard = document()
    hard["request"]["pdb"] = "hard"
    assert plan_from_dict(hard).request.pdb == "hard"
    hard["request"]["draReclaim"] = "all"
    assert plan_from_dict(hard).request.dra_reclaim == "all"
    del hard["request"]["draReclaim"]
    assert plan_from_dict(hard).request.dra_reclaim == "none"
    del hard["request"]["pdb"]
    assert plan_from_dict(hard) == PLAN


MISSING = object()


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        pytest.param(
            ("apiVersion",),
            "gangplan/v9",
            "plan: apiVersion: must be gangplan/v1, not 'gangplan/v9'",
            id="version",
        ),
        pytest.param(("kind",), "WhatIf", "plan: kind: must be Plan, not 'WhatIf'", id="kind"),
        pytest.param(
            ("command",),
            "fly",
            "plan: command: must be one of explain, place, preempt, repack, not 'fly'",
            id="command",
        ),
        pytest.param(
            ("groups", 0, "pods", 1, "node"),
            3,
            "plan: groups[0].pods[1].node: must be a string, not 3",
            id="type deep inside",
        ),
        pytest.param(
            ("groups", 0, "minCount"),
            True,
            "plan: groups[0].minCount: must be a whole number, not True",
            id="truth is no number",
        ),
        pytest.param(
            ("groups", 0, "pendingPods"),
            ["x", None],
            "plan: groups[0].pendingPods[1]: must be a string, not null",
            id="null in a list",
        ),
        pytest.param(
            ("groups", 1, "cause", "is"),
            "bad luck",
            "plan: groups[1].cause.is: must be one of quorum-missing, refused, impossible, "
            "domain-pinned, device-held, policy-never, constraint, fragmented, busy, "
            "not 'bad luck'",
            id="cause",
        ),
        pytest.param(
            ("moves", 0, "from"),
            MISSING,
            "plan: moves[0].from: is missing; give a complete Plan document",
            id="missing",
        ),
        pytest.param(("moves",), {}, "plan: moves: must be a list, not {}", id="no list"),
        pytest.param(
            ("evictions", 0), "x", "plan: evictions[0]: must be an object, not 'x'", id="no object"
        ),
        pytest.param(
            ("request", "move"), 1, "plan: request.move: must be an object, not 1", id="move"
        ),
        pytest.param(
            ("request", "preempt"),
            1,
            "plan: request.preempt: must be true or false, not 1",
            id="flag",
        ),
        pytest.param(
            ("criteria", "podsPlaced"),
            1.5,
            "plan: criteria.podsPlaced: must be a whole number, not 1.5",
            id="criterion",
        ),
        pytest.param(
            ("bound", "gap"), "0", "plan: bound.gap: must be a number or null, not '0'", id="gap"
        ),
        pytest.param(
            ("verification", "valid"),
            True,
            "plan: verification.valid: must be true exactly when no violation is listed, not True",
            id="valid with violations",
        ),
        pytest.param(
            ("snapshot",), None, "plan: snapshot: must be an object, not null", id="no snapshot"
        ),
    ],
)
def test_malformed_field(path: tuple[str | int, ...], value: object, want: str) -> None:
    broken: Any = document()
    at = broken
    for key in path[:-1]:
        at = at[key]
    if value is MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    with pytest.raises(RequestError) as caught:
        plan_from_dict(broken)
    assert str(caught.value) == want


def test_document_must_be_an_object() -> None:
    with pytest.raises(RequestError, match="plan: document: must be an object, not"):
        plan_from_dict([])  # type: ignore[arg-type]
