"""Kubernetes objects as YAML text -> snapshot -> plan, and what tests want to know of a plan."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from data.reader import read_snapshot
from ray_jobs.pipeline import make_plan
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topology.model import Snapshot
    from topology.plan import Cause, GroupPlan, Plan

Obj = dict[str, Any]


def read_yaml(objects: Iterable[Obj]) -> Snapshot:
    """Read objects from one file of several YAML documents."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "objects.yaml")
        file.write_text(yaml.safe_dump_all(objects))
        return read_snapshot([str(file)])


def ask(*objects: Obj, **request: Any) -> Plan:
    """Plan everything pending; keyword arguments are fields of the request.

    Every plan must pass the verifier, whatever a test goes on to look at.
    """
    plan = make_plan(read_yaml(objects), Request(**request))
    assert plan.verification is not None
    assert plan.verification.violations == ()
    return plan


def group_of(plan: Plan, ref: str = "ml/g") -> GroupPlan:
    """The entry of a group."""
    return next(entry for entry in plan.groups if entry.group == ref)


def cause_of(plan: Plan, ref: str = "ml/g") -> Cause:
    """Why a group is not placed."""
    entry = group_of(plan, ref)
    assert entry.cause is not None, f"{ref} is placed: {pods_of(plan, ref)}"
    return entry.cause


def why_not(plan: Plan) -> dict[str, str]:
    """Group -> cause, for the groups that are not placed."""
    return {entry.group: entry.cause.name for entry in plan.groups if entry.cause is not None}


def pods_of(plan: Plan, ref: str = "ml/g") -> dict[str, str]:
    """Pod -> node of what a group gets, the namespace left out."""
    return {p.pod.partition("/")[2]: p.node for p in group_of(plan, ref).pods}


def spread(plan: Plan, ref: str = "ml/g") -> dict[str, int]:
    """Node -> new pods of a group."""
    return dict(Counter(pods_of(plan, ref).values()))


def placed(plan: Plan) -> dict[str, int]:
    """Group -> new pods, for the groups that are placed."""
    return {entry.group: len(entry.pods) for entry in plan.groups if entry.pods}
