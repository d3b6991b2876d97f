"""A snapshot that uses every field of the model, with names that are easy to find again."""

from __future__ import annotations

import dataclasses

import numpy as np
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

from topology.devices import (
    ALL_DEVICES,
    NO_DEVICE,
    AllocatedClaim,
    AllocatedDevice,
    Capacity,
    Counter,
    DeviceConstraint,
    DeviceFilter,
    DeviceKind,
    DevicePool,
    DeviceRequest,
    DeviceTable,
    ExtendedResource,
    RequestChoice,
    Reserver,
)
from topology.model import (
    HOSTNAME,
    AffinityTerm,
    Budget,
    ClaimNeed,
    Exclusive,
    HostPort,
    LabelSelector,
    ObjectError,
    Phase,
    PodFlag,
    Requirement,
    SelectorTerm,
    SliceTerm,
    Snapshot,
    SpreadTerm,
    Taint,
    Toleration,
    TopologyTerm,
)

BLOCK = "topo.zebra.com/block"
APP = LabelSelector((Requirement("zebra-app", "In", ("zebra-web",)),))


def make_rich_snapshot() -> Snapshot:
    """Two racks of two nodes, a composite over a gang with subgroups, and everything odd."""
    nodes = [
        make_node(
            f"zebra-n{i}",
            rack=f"zebra-r{i // 2}",
            memory=2**62 + 1,
            labels={BLOCK: "zebra-b0", "zebra.com/cores": str(8 * i), "zebra.com/pool": "zebra-p"},
            taints=[Taint("zebra.com/taint", "zebra-value")] if i == 3 else [],
            unschedulable=i == 1,
            ready=i != 2,
        )
        for i in range(4)
    ]
    leader = make_spec(
        gpus=2,
        cpu=1500,
        memory=2**53 + 1,
        node_selector=(("zebra.com/pool", "zebra-p"),),
        node_terms=(
            SelectorTerm(
                (Requirement("zebra.com/cores", "Gt", ("4",)),),
                (Requirement("metadata.name", "In", ("zebra-n2", "zebra-gone")),),
            ),
            SelectorTerm(),
        ),
        tolerations=(Toleration("zebra.com/taint", "Equal", "zebra-value", "NoSchedule"),),
        host_ports=(HostPort(8080),),
        affinity=(AffinityTerm(RACK, APP, ("zebra-ns",)),),
        anti_affinity=(AffinityTerm(HOSTNAME, None, all_namespaces=True),),
        spread=(SpreadTerm(RACK, 1, APP, 2, honor_taints=True),),
        claims=(
            ClaimNeed("zebra-c", "zebra-ns/zebra-claim", "", True, (SelectorTerm(),)),
            ClaimNeed(
                "zebra-d",
                template="zebra-template",
                requests=(
                    RequestChoice(
                        "zebra-r",
                        (
                            DeviceRequest(
                                "zebra-r/zebra-s",
                                1,
                                2,
                                tolerations=(Toleration("zebra.com/taint", "Exists"),),
                                capacity=(("zebra.com/memory", 1000),),
                            ),
                            DeviceRequest("zebra-r/zebra-t", 0, ALL_DEVICES, is_admin=True),
                        ),
                    ),
                ),
                constraints=(DeviceConstraint("zebra.com/root", ("zebra-r",), True),),
            ),
        ),
        scheduler="zebra-scheduler",
        never_preempts=True,
        unmodelled=("volume zebra-data",),
    )
    common = {"namespace": "zebra-ns", "labels": {"zebra-app": "zebra-web"}}
    pods = [
        make_pods(
            "zebra-lead",
            1,
            spec=leader,
            group="zebra-ns/zebra-g#zebra-head",
            on="zebra-n2",
            template="zebra-leader",
            created=1_700_000_000,
            started=1_700_000_060,
            checkpoint=1_700_000_090,
            **common,
        ),
        make_pods("zebra-work", 3, group="zebra-ns/zebra-g#1", nominated="zebra-n0", **common),
        make_pods("zebra-lost", 1, on="zebra-elsewhere", flags=int(PodFlag.TERMINATING)),
        make_pods("zebra-daemon", 4, on=[n.name for n in nodes], flags=int(PodFlag.DAEMON)),
    ]
    pods[2][0].phase = Phase.UNKNOWN
    group, leaf = "zebra-ns/zebra-g", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"
    groups = [
        make_group("zebra-ns/zebra-tree", 0, kind="composite", key=BLOCK, min_groups=1, size=4),
        make_group(
            group,
            4,
            parent="zebra-ns/zebra-tree",
            api=leaf,
            queue="zebra-queue",
            priority=7,
            exclusive=(Exclusive("zebra-ns", RACK), Exclusive("zebra-class")),
            disruption="all",
            blocked="SchedulerError: zebra",
            unmodelled=("zebra reason",),
            evictable=False,
            created=1_700_000_000,
            min_groups=2,
        ),
        make_group(
            f"{group}#zebra-head",
            1,
            kind="subgroup",
            name="zebra-head",
            parent=group,
            api=leaf,
            is_leader=True,
            is_inferred=True,
            movable=False,
            never_preempts=True,
        ),
        make_group(
            f"{group}#1",
            2,
            size=3,
            kind="subgroup",
            name="1",
            parent=group,
            api=leaf,
            topology=(TopologyTerm((BLOCK, RACK), required=False),),
            slices=(SliceTerm((RACK,), 2),),
        ),
        make_group("ml/empty", 0, size=0, policy="basic"),
    ]
    return make_snapshot(
        nodes,
        *pods,
        groups=groups,
        budgets=[
            Budget("zebra-ns/zebra-pdb", APP, 1, frozenset({"zebra-work-1", "zebra-old"})),
            Budget("zebra-ns/zebra-null", None, 0),
        ],
        devices=make_rich_devices(),
        errors=[ObjectError("zebra-ns/zebra-bad", "Pod", "spec.zebra", "is zebra", "zebra.yaml")],
        warnings=["pod zebra-ns/zebra-odd was zebra"],
    )


def make_rich_devices() -> DeviceTable:
    """Eight whole devices on one node, and one that all share, with everything odd."""
    whole = DeviceKind(
        (0,),
        counters=(Counter("zebra-set", "zebra-slices", 1000),),
        attributes=(("zebra.com/root", "string:zebra-root"),),
        binds_to_node=True,
    )
    shared = DeviceKind(
        (1,),
        capacity=(Capacity("zebra.com/memory", 64_000, 1000, (1000, 2000), 0, 3000, 500),),
        is_shared=True,
        taints=(Taint("zebra.com/taint", "zebra-value"),),
    )
    return DeviceTable(
        filters=(
            DeviceFilter("gpu.zebra.com"),
            DeviceFilter("nic.zebra.com", ("zebra == 1",)),
        ),
        pools=(
            DevicePool(
                "driver.zebra.com", "zebra-n0", True, (Counter("zebra-set", "zebra-slices", 8000),)
            ),
            DevicePool("driver.zebra.com", "zebra-net", False),
        ),
        kinds=(whole, shared),
        reaches=((0,), (0, 1, 2, 3)),
        names=(*(f"zebra-d{i}" for i in range(8)), "zebra-nic"),
        pool=(0,) * 8 + (1,),
        kind=(0,) * 8 + (1,),
        reach=(0,) * 8 + (1,),
        claims=(
            AllocatedClaim(
                "zebra-ns/zebra-held",
                (
                    AllocatedDevice(0, "zebra-r"),
                    AllocatedDevice(NO_DEVICE, "zebra-r", is_admin=True),
                    AllocatedDevice(8, "zebra-s", consumed=(("zebra.com/memory", 1000),)),
                ),
                (
                    Reserver("pods", "zebra-ns/zebra-work-1"),
                    Reserver("pods", "zebra-ns/zebra-old"),
                    Reserver("podgroups", "zebra-ns/zebra-g"),
                ),
                is_node_local=False,
            ),
        ),
        extended=(ExtendedResource("zebra.com/gpu", 0, (0, 2)),),
    )


def assert_same(found: object, want: object) -> None:
    """Compare two snapshots (or pod tables) field by field, types of columns included."""
    assert dataclasses.is_dataclass(want)
    for field in dataclasses.fields(want):
        one, other = getattr(found, field.name), getattr(want, field.name)
        if field.name == "pods":
            assert_same(one, other)
        elif isinstance(other, np.ndarray):
            assert one.dtype == other.dtype, field.name
            assert one.tolist() == other.tolist(), field.name
        else:
            assert one == other, field.name
