"""The devices of a plan in names: which pod's claims get which.

Source: the `devices` of `groups[].pods[]` of the contract.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from optimizer.devices.ledger import DeviceLedger
from optimizer.devices.needs import has_needs
from topology.plan import PlacedDevice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optimizer.problem import Problem
    from topology.model import Snapshot
    from topology.plan import GroupPlan

__all__ = ["name_devices"]


def name_devices(
    snapshot: Snapshot,
    problem: Problem,
    placed: Mapping[int, int],
    groups: Sequence[GroupPlan],
) -> tuple[GroupPlan, ...]:
    """Return the groups of a plan with the devices of every new pod.

    Args:
      snapshot: The fleet without what would be evicted.
      problem: Its units; in their order the search made sure that devices suffice.
      placed: Pod -> node.
      groups: Entries of the plan.
    """
    specs = snapshot.pods.specs
    if not any(has_needs(snapshot, specs[x]) for x in problem.class_specs):
        return tuple(groups)
    ledger = DeviceLedger(snapshot)
    for unit in problem.units:
        seats = {p: placed[p] for task in unit.tasks for p in task.pods if p in placed}
        # What is refused here is missing in the plan, and the verifier says so.
        ledger.add(seats)
    table = snapshot.devices
    given: dict[str, tuple[PlacedDevice, ...]] = {}
    for pod, grants in ledger.list_grants().items():
        given[snapshot.pods.refs[pod]] = tuple(
            PlacedDevice(
                claim,
                grant.request,
                table.pools[table.pool[grant.device]].driver,
                table.pools[table.pool[grant.device]].name,
                table.names[grant.device],
            )
            for claim, grant in grants
        )
    return tuple(
        replace(entry, pods=tuple(replace(p, devices=given.get(p.pod, ())) for p in entry.pods))
        for entry in groups
    )
