"""What a heat map says is free is what the objective counts as free."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from plan_builders import make_plan
from tiny_fleets import Rows, tiny_fleets

import gangplan
from gangplan.reporting.changes import find_changes
from gangplan.reporting.fleet import fleet_of_snapshot
from optimizer.fragmentation import count_free_gpus


@given(rows=tiny_fleets(), data=st.data())
def test_free_after_a_plan(rows: Rows, data: st.DataObject) -> None:
    snapshot = rows.build()
    pods = snapshot.pods
    waiting = [p for p, waits in enumerate(pods.is_pending) if waits]
    # Any nodes will do, also where the pods would not fit.
    placed = {
        p: data.draw(st.integers(0, len(snapshot.nodes) - 1))
        for p in waiting
        if data.draw(st.booleans())
    }
    plan = make_plan(snapshot, {pods.refs[p]: snapshot.nodes[n].name for p, n in placed.items()})
    changes = find_changes(fleet_of_snapshot(snapshot), plan)
    assert changes.before.free.tolist() == count_free_gpus(snapshot).free.tolist()
    assert changes.after.free.tolist() == count_free_gpus(snapshot, placed).free.tolist()
    assert changes.touched == set(placed.values())
    assert gangplan.report(plan, snapshot).startswith("<!DOCTYPE html>")
