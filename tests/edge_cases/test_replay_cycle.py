"""Cases 9 to 38, 82: the scheduler's own cycle beside the search, both answers."""

from __future__ import annotations

import pytest
from asking import ask, cause_of, placed, pods_of, spread, why_not
from builders import RACK
from kube import GPU, composite, container, gang, node, pod
from replaying import (
    BASIC,
    ONE_RACK,
    ZONE,
    Obj,
    child,
    crowd,
    replay,
    room,
    run,
    wait,
)

GONE = {"deletionTimestamp": "2026-11-30T10:00:00Z"}
GATES = [{"name": "example.com/quota"}]

HETEROGENEOUS = [node("n0"), node("n1"), gang("g", 9), *wait(8), *wait(1, start=8, gpus=8)]
THIEF = [
    node(labels={RACK: "r1"}),
    composite("top", 2),
    child("a", 2),
    child("b", 4),
    *wait(8, group="a"),
    *wait(4, group="b"),
]


@pytest.mark.parametrize(
    ("objects", "want_replay", "want_optimize"),
    [
        pytest.param([room(8), gang("g", 4), *wait(3)], {}, {}, id="9: one pod too few"),
        pytest.param([room(3), gang("g", 4), *wait(4)], {}, {}, id="10: room for 3 of 4"),
        pytest.param(
            [room(5), gang("g", 4), *wait(6)], {"ml/g": 5}, {"ml/g": 5}, id="11: room for 5 of 6"
        ),
        pytest.param(
            [room(8), gang("g", 8), *crowd("r", 7, "n0", group="g"), *wait(1)],
            {"ml/g": 1},
            {"ml/g": 1},
            id="12: seven run, the replacement fits",
        ),
        pytest.param(
            [room(8), gang("g", 8), *crowd("r", 3, "n0", group="g"), *wait(4)],
            {},
            {},
            id="13: three run and four wait, of eight",
        ),
        pytest.param(
            [room(5), gang("g", 4), *crowd("r", 4, "n0", group="g"), *wait(2)],
            {"ml/g": 1},
            {"ml/g": 1},
            id="15: room for one of the extras",
        ),
        pytest.param(
            [room(2), gang("g", **BASIC), *wait(5)],
            {"ml/g": 2},
            {"ml/g": 2},
            id="16: basic, room for two",
        ),
        pytest.param([room(0), gang("g", **BASIC), *wait(5)], {}, {}, id="17: basic, no room"),
        pytest.param(
            [room(8), gang("g", 4), *wait(4), *wait(1, start=4, schedulingGates=GATES)],
            {"ml/g": 4},
            {"ml/g": 4},
            id="18: one gated, the four others make the floor",
        ),
        pytest.param(
            [
                room(8),
                gang("g", 4),
                *wait(4),
                *wait(1, start=4, metadata={"name": "gone", "namespace": "ml", **GONE}),
            ],
            {"ml/g": 4},
            {"ml/g": 4},
            id="19: one terminates while pending: ignored",
        ),
        pytest.param(
            [
                room(8),
                gang("g", 4),
                *wait(3),
                pod("done", on="n0", group="g", phase="Succeeded"),
            ],
            {},
            {},
            id="20: a finished member counts for nothing",
        ),
        pytest.param(
            [room(8), gang("g", 2), *wait(1), *wait(1, start=1, schedulerName="other")],
            {},
            {},
            id="21: two schedulers",
        ),
        pytest.param(
            [room(8), gang("g", 1, priority=10), *wait(1, priority=5)],
            {},
            {},
            id="22: pod priority 5, group priority 10",
        ),
        pytest.param(
            [
                node(),
                gang("g", 8, priority=10),
                gang("h", 8, priority=5),
                *wait(8, priority=10),
                *wait(8, group="h", priority=5),
            ],
            {"ml/g": 8},
            {"ml/g": 8},
            id="24: the higher priority wins whole, no interleaving",
        ),
        pytest.param(
            HETEROGENEOUS, {}, {"ml/g": 9}, id="25: small ones first spread over both nodes"
        ),
        pytest.param(
            [room(5), gang("g", 4), *wait(8)],
            {"ml/g": 5},
            {"ml/g": 5},
            id="26: the floor of now counts",
        ),
        pytest.param(
            [room(16, "n0"), room(8, "n1", rack="r1"), gang("g", 8, **ONE_RACK), *wait(8)],
            {"ml/g": 8},
            {"ml/g": 8},
            id="28: a node without the label is never used",
        ),
        pytest.param(
            [room(8), gang("g", 2, **ONE_RACK), *wait(2)], {}, {}, id="29: no node has the label"
        ),
        pytest.param(
            [
                room(2, "n0", rack="a"),
                room(8, "n1", rack="b"),
                gang("g", 4, **ONE_RACK),
                *crowd("r", 2, "n0", group="g"),
                *wait(2),
            ],
            {},
            {},
            id="30: pinned to a full rack",
        ),
        pytest.param(
            [
                room(8, "n0", rack="a"),
                room(8, "n1", rack="b"),
                gang("g", 2, **ONE_RACK),
                run("r0", "n0", group="g"),
                run("r1", "n1", group="g"),
                *wait(2),
            ],
            {},
            {},
            id="31: members in two racks",
        ),
        pytest.param(
            [
                room(4, "n0", rack="r1"),
                room(4, "n1", rack="r1"),
                gang("g", 8, **ONE_RACK),
                *wait(8),
            ],
            {"ml/g": 8},
            {"ml/g": 8},
            id="32: equal values are one domain",
        ),
        pytest.param(
            [
                room(5),
                composite("top", 2),
                child("a", 6),
                child("b", 2),
                child("c", 2),
                *wait(6, group="a"),
                *wait(2, group="b"),
                *wait(2, group="c"),
            ],
            {"ml/b": 2, "ml/c": 2},
            {"ml/b": 2, "ml/c": 2},
            id="36: two of three children suffice",
        ),
        pytest.param(
            [
                room(5),
                composite("top", 3),
                child("a", 6),
                child("b", 2),
                child("c", 2),
                *wait(6, group="a"),
                *wait(2, group="b"),
                *wait(2, group="c"),
            ],
            {},
            {},
            id="37: three of three, one infeasible: nothing anywhere",
        ),
        pytest.param(
            [
                node("n0", labels={RACK: "r0", ZONE: "a"}),
                room(2, "n1", rack="r1"),
                *(node(f"m{i}", labels={RACK: f"s{i}", ZONE: "b"}) for i in range(2)),
                composite("top", 2, schedulingConstraints={"topology": [{"key": ZONE}]}),
                child("a", 8, **ONE_RACK),
                child("b", 8, **ONE_RACK),
                *wait(8, group="a"),
                *wait(8, group="b"),
            ],
            {"ml/a": 8, "ml/b": 8},
            {"ml/a": 8, "ml/b": 8},
            id="34: one zone, a rack for each child",
        ),
        pytest.param(
            [
                room(8),
                gang("g", 2, priority=10),
                *crowd("r", 1, "n0", group="g", priority=5),
                *wait(1, priority=10),
            ],
            {},
            {},
            id="23: a placed member with another priority",
        ),
        pytest.param(
            [
                node("n0", labels={RACK: "r"}),
                *(gang(name, 2, **ONE_RACK) for name in "ab"),
                *wait(2, group="a"),
                *wait(2, group="b"),
            ],
            {"ml/a": 2, "ml/b": 2},
            {"ml/a": 2, "ml/b": 2},
            id="33: two groups in one rack",
        ),
        pytest.param(THIEF, {}, {"ml/a": 4, "ml/b": 4}, id="38: the first child takes all"),
    ],
)
def test_placement(
    objects: list[Obj], want_replay: dict[str, int], want_optimize: dict[str, int]
) -> None:
    assert placed(replay(*objects)) == want_replay
    assert placed(ask(*objects)) == want_optimize


def test_equal_priorities_earlier_wins() -> None:
    """Case 24, second half."""

    def made(name: str, minute: int) -> Obj:
        group = gang(name, 8)
        group["metadata"]["creationTimestamp"] = f"2026-11-30T10:{minute:02}:00Z"
        return group

    plan = replay(node(), made("a", 30), made("b", 10), *wait(8, group="a"), *wait(8, group="b"))
    assert placed(plan) == {"ml/b": 8}


@pytest.mark.parametrize(
    ("objects", "want_cause", "want_words"),
    [
        pytest.param(
            HETEROGENEOUS,
            "fragmented",
            "one greedy pass reaches 8 of the 9 it needs",
            id="25: the search would place it",
        ),
        pytest.param([room(8), gang("g", 4), *wait(3)], "quorum-missing", "3", id="9: not queued"),
        pytest.param(
            [
                room(8, "n0", rack="a"),
                room(8, "n1", rack="b"),
                gang("g", 2, **ONE_RACK),
                run("r0", "n0", group="g"),
                run("r1", "n1", group="g"),
                *wait(2),
            ],
            "domain-pinned",
            "SchedulerError: placed members of ml/g are not all in one",
            id="31: an error, no shortage",
        ),
        pytest.param(
            [room(8), gang("g", 1, priority=10), *wait(1, priority=5)],
            "refused",
            "priority",
            id="22: an error, no shortage",
        ),
        pytest.param([room(1), gang("g", 2), *wait(2)], "impossible", "", id="no room at all"),
    ],
)
def test_cause(objects: list[Obj], want_cause: str, want_words: str) -> None:
    cause = cause_of(replay(*objects))
    assert cause.name == want_cause
    assert want_words in f"{cause.message} {cause.details.get('cycle')}"


@pytest.mark.parametrize(
    ("objects", "want_nodes"),
    [
        pytest.param(
            [
                *(
                    room(gpus, f"n-{rack}", rack=rack)
                    for gpus, rack in ((6, "a"), (8, "b"), (16, "c"))
                ),
                *(run(f"f{i}", "n-c", gpus=0, second=i) for i in range(1)),
                pod("busy", container(cpu="30"), on="n-c"),
                gang("g", 8, **ONE_RACK),
                *wait(8),
            ],
            {"n-c": 8},
            id="27: the rack with more cpu in use, not the one that fits",
        ),
        pytest.param(
            [
                *(
                    room(gpus, f"n-{rack}", rack=rack)
                    for gpus, rack in ((6, "a"), (8, "b"), (16, "c"))
                ),
                gang("g", 8, **ONE_RACK),
                *wait(8),
            ],
            {"n-b": 8},
            id="27: equal scores: by name of the domain",
        ),
        pytest.param(
            [
                room(7, "n0", rack="a"),
                pod("busy", container(cpu="34"), on="n0"),
                room(8, "n1", rack="b"),
                gang("g", 4, **ONE_RACK),
                *wait(8, cpu="1"),
            ],
            {"n0": 7},
            id="7 of 8 pods at 87 and a fuller rack beat 8 of 8 at 100",
        ),
        pytest.param(
            [
                room(7, "n0", rack="a"),
                pod("busy", container(cpu="12"), on="n0"),
                room(8, "n1", rack="b"),
                gang("g", 4, **ONE_RACK),
                *wait(8, cpu="1"),
            ],
            {"n1": 8},
            id="8 of 8 pods at 100 beat 7 of 8 at 87 and a little more fill",
        ),
    ],
)
def test_topology_choice(objects: list[Obj], want_nodes: dict[str, int]) -> None:
    assert spread(replay(*objects)) == want_nodes


def test_nominated_node_comes_first() -> None:
    """The scheduler tries it before it scores the others."""
    plan = replay(
        node("n0"),
        node("n1"),
        gang("g", 1),
        *wait(1, status={"nominatedNodeName": "n1"}),
    )
    assert pods_of(plan) == {"g0": "n1"}


def test_room_of_nominated_pods() -> None:
    """Case 82: a lower priority does not fit beside a nominated pod, a higher one does."""
    nominated = pod("q", container(gpus=8), priority=10, status={"nominatedNodeName": "n0"})
    low = replay(node(), nominated, pod("p", container(gpus=1), priority=5), groups=("ml/p",))
    high = replay(node(), nominated, pod("p", container(gpus=1), priority=15), groups=("ml/p",))
    assert (placed(low), placed(high)) == ({}, {"ml/p": 1})


@pytest.mark.parametrize(
    ("release", "want_placed"),
    [
        pytest.param("1.37", {"ml/a": 6}, id="1.37: the first group takes all it can"),
        pytest.param("1.36", {"ml/a": 6}, id="1.36: its cycle pulls in all its pods"),
        pytest.param("1.35", {}, id="1.35: pods alternate, both hold four, neither has five"),
    ],
)
def test_partial_reservations(release: str, want_placed: dict[str, int]) -> None:
    """1.35 has no group cycle: gangs whose pods alternate in the queue deadlock at Permit."""

    def made(name: str, second: int) -> Obj:
        stamp = f"2026-11-30T10:00:{second:02}Z"
        metadata = {"name": name, "namespace": "ml", "creationTimestamp": stamp}
        return pod(name, group=name[0], metadata=metadata)

    pods = [made(f"{g}{i}", 2 * i + (g == "b")) for g in "ab" for i in range(6)]
    plan = replay(node(), gang("a", 5), gang("b", 5), *pods, release=release)
    assert placed(plan) == want_placed
    if release == "1.35":
        assert why_not(plan) == {"ml/a": "fragmented", "ml/b": "fragmented"}


def test_siblings_share_a_rack() -> None:
    """Case 35: both zones score alike; in the first one both children take the big rack."""
    sizes = {"a": (8, 2), "b": (4, 4)}
    nodes = [
        node(
            f"{zone}{i}",
            labels={ZONE: zone, RACK: f"{zone}{i}"},
            allocatable={"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)},
        )
        for zone, both in sizes.items()
        for i, gpus in enumerate(both)
    ]
    one_zone = {"schedulingConstraints": {"topology": [{"key": ZONE}]}}
    plan = replay(
        *nodes,
        composite("top", 2, **one_zone),
        child("a", 4, **ONE_RACK),
        child("b", 4, **ONE_RACK),
        *wait(4, group="a"),
        *wait(4, group="b"),
    )
    assert (spread(plan, "ml/a"), spread(plan, "ml/b")) == ({"a0": 4}, {"a0": 4})
