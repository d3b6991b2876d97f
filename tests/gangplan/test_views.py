"""Answers as tables."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

from gangplan.api import placements_table
from gangplan.inspection import Inspection, inspect_snapshot
from gangplan.views import (
    name_inspection,
    name_plan,
    show_domains,
    show_explanation,
    show_inspection,
    show_plan,
    show_verification,
)
from topology.errors import RequestError
from topology.model import Exclusive, Snapshot, TopologyTerm
from topology.plan import (
    Bound,
    Cause,
    ChosenDomain,
    Eviction,
    GroupPlan,
    PlacedPod,
    Plan,
    Request,
    Verification,
    Violation,
)


def make_fleet() -> Snapshot:
    """Two racks of two nodes, one cordoned; a gang runs, two wait, a pod waits alone."""
    return make_snapshot(
        [
            make_node("n1", rack="r1"),
            make_node("n2", rack="r1"),
            make_node("n3", rack="r2"),
            make_node("n4", rack="r2", unschedulable=True),
        ],
        make_pods("run", 2, group="ml/run", on="n1", spec=make_spec(gpus=3)),
        make_pods("big", 2, group="ml/big", spec=make_spec(gpus=8)),
        make_pods("sub", 1, group="ml/low#0", spec=make_spec(gpus=4)),
        make_pods("solo", 1),
        groups=[
            make_group("ml/run", 2),
            make_group("ml/big", 2, key=RACK, priority=100),
            make_group("ml/low", 1, topology=(TopologyTerm(("block",), required=False),)),
            make_group(
                "ml/low#0",
                1,
                parent="ml/low",
                kind="subgroup",
                exclusive=(Exclusive("lws", RACK),),
            ),
        ],
    )


def show(text: str) -> str:
    return dedent(text).strip()


def test_inspection() -> None:
    want = show("""
        LEVEL                   DOMAINS   NODES   GPUS   USED      FREE       WHOLE-FREE   1-GPU-GANG   8-GPU-GANG
        *                       1         4       32     6 (19%)   18 (56%)   2            18           2
        block                   0         0       0      0         0          0            0            0
        topo.example.com/rack   2         4       32     6 (19%)   18 (56%)   2            10           1
        node                    4         4       32     6 (19%)   18 (56%)   2            8            1

        GROUP        PRIORITY   MIN      SIZE     RUNNING   PENDING   GPUS   TOPOLOGY
        ml/big       100        2        2        0         2         16     topo.example.com/rack
        ml/low       0          1        1        0         1         4      block (preferred), topo.example.com/rack (each subgroup exclusive)
        (no group)   <none>     <none>   <none>   <none>    1         1      <none>
    """)  # noqa: E501
    assert show_inspection(inspect_snapshot(make_fleet()), wide=False) == want


def test_nothing_waits() -> None:
    want = show("""
        LEVEL   DOMAINS   NODES   GPUS   USED   FREE   WHOLE-FREE   1-GPU-GANG   8-GPU-GANG
        *       0         0       0      0      0      0            0            0
        node    0         0       0      0      0      0            0            0
    """)
    assert show_inspection(inspect_snapshot(make_snapshot([])), wide=False) == want


def test_domains() -> None:
    want = show("""
        DOMAIN   NODES   GPUS   USED      FREE       WHOLE-FREE   SCHEDULABLE   PODS
        *        4       32     6 (19%)   18 (56%)   2            3             2
        r1       2       16     6 (38%)   10 (63%)   1            2             2
        r2       2       16     0 (0%)    8 (50%)    1            1             0
    """)
    inspection = Inspection(make_fleet(), {}, {})
    assert show_domains(inspection, RACK, wide=True) == want
    by_node = show_domains(inspection, "node", wide=False).splitlines()
    assert by_node[2].split() == ["n1", "1", "8", "6", "(75%)", "2", "(25%)", "0", "1"]
    with pytest.raises(RequestError, match=r"--by zone: is no topology label .* topo.example.com"):
        show_domains(inspection, "zone", wide=False)


def test_names_of_an_inspection() -> None:
    names = name_inspection(Inspection(make_fleet(), {}, {}))
    assert names[:5] == ["node/n1", "node/n2", "node/n3", "node/n4", "group/ml/big"]
    assert "group/ml/low#0" not in names
    assert names[-1] == "pod/ml/sub-0"


def make_plan(command: str = "place") -> Plan:
    big = GroupPlan(
        "ml/big",
        "scheduling.k8s.io/v1beta1/PodGroup",
        "gang",
        2,
        100,
        "notPlaced",
        cause=Cause("constraint", "uncordon n4", {"event": "0/1 nodes are available."}),
        pending_pods=("ml/big-0", "ml/big-1"),
    )
    low = GroupPlan(
        "ml/low",
        "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
        "gang",
        1,
        0,
        "placed",
        domains=(ChosenDomain(RACK, "r2", "0"),),
        pods=(PlacedPod("ml/sub-0", "n3", "0"),),
    )
    return Plan(
        Request(command),  # type: ignore[arg-type]
        {},
        (low, big),
        criteria={"groupsPlaced": 1, "gpusPlaced": 4, "priority": 0, "fragmentation": 2},
        bound=Bound("gpusPlaced", 4, 0.0, "optimal"),
        verification=Verification(41),
    )


def test_plan() -> None:
    want = show("""
        GROUP    PRIORITY   OUTCOME         PODS     DOMAIN                     NODES    CAUSE
        *        <none>     1 of 2 placed   1 of 3   <none>                     1 node   <none>
        ml/big   100        not placed      0 of 2   <none>                     <none>   constraint
        ml/low   0          placed          1 of 1   topo.example.com/rack=r2   n3       <none>

        CRITERION       VALUE   BOUND    PROOF
        priority        0       <none>   <none>
        gpusPlaced      4       4        optimal
        fragmentation   2       <none>   <none>

        verified: 41 checks, 0 violations
    """)
    assert show_plan(make_fleet(), make_plan(), wide=False) == want
    wide = show_plan(make_fleet(), make_plan(), wide=True).splitlines()
    assert wide[0].split()[-4:] == ["GPUS", "MIN", "POLICY", "API"]
    assert wide[1].split()[-4:] == ["4", "<none>", "<none>", "<none>"]
    assert wide[3].split()[-4:] == ["4", "1", "gang", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"]


def test_explanation() -> None:
    want = show("""
        GROUP    PRIORITY   CAUSE        MESSAGE
        ml/big   100        constraint   uncordon n4; 0/1 nodes are available.
        ml/low   0          fits now     1 pod fits in topo.example.com/rack=r2 now
    """)
    assert show_explanation(make_plan("explain"), wide=False) == want


def test_explanation_with_evictions() -> None:
    gone = (Eviction("ml/v-0", "n3", None, "preemption", "ml/low"),)
    want = show("""
        GROUP    PRIORITY   CAUSE         MESSAGE
        ml/big   100        constraint    uncordon n4; 0/1 nodes are available.
        ml/low   0          would evict   1 pod would fit in topo.example.com/rack=r2 if 1 pod was evicted for it
    """)  # noqa: E501
    assert show_explanation(replace(make_plan("explain"), evictions=gone), wide=False) == want


def test_verification() -> None:
    broken = Verification(9, (Violation("capacity", "node n1", "at most 8", "9"),))
    want = show("""
        NOT VALID: 9 checks, 1 violation

        RULE       OBJECT    WANTED      FOUND
        capacity   node n1   at most 8   9
    """)
    assert show_verification(broken) == want


def test_names_of_a_plan() -> None:
    assert name_plan(make_plan("place")) == ["pod/ml/sub-0"]
    assert name_plan(make_plan("explain")) == ["group/ml/big"]


def test_placements_table() -> None:
    want_rows = [
        {
            "group": "ml/low",
            "pod": "ml/sub-0",
            "node": "n3",
            "subgroup": "0",
            "template": None,
            "priority": 0,
        },
        *(
            {
                "group": "ml/big",
                "pod": f"ml/big-{i}",
                "node": None,
                "subgroup": None,
                "template": None,
                "priority": 100,
            }
            for i in range(2)
        ),
    ]
    assert placements_table(make_plan()).to_pylist() == want_rows
    empty = placements_table(Plan(Request(), {}))
    assert (empty.num_rows, empty.num_columns) == (0, 6)
