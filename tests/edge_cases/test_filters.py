"""Resources, taints, affinity and spread as they decide where a pod goes."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, cause_of, placed, pods_of, spread, why_not
from kube import GPU, container, gang, node, pod, thing

Obj = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
NOT_READY = "node.kubernetes.io/not-ready"
APP = {"matchLabels": {"app": "x"}}
LABELLED = {"labels": {"app": "x"}}
GONE = {"deletionTimestamp": "2026-11-30T10:00:00Z"}


def machine(name: str, gpus: int = 8, zone: str = "", slots: int = 110, **fields: Any) -> Obj:
    """A node with so many GPUs and pod slots."""
    labels = fields.pop("labels", {}) | ({ZONE: zone} if zone else {})
    amounts = {"cpu": "64", "memory": "512Gi", "pods": str(slots), GPU: str(gpus)}
    return node(name, labels=labels, spec=fields, allocatable=amounts)


def requests(**amounts: str) -> Obj:
    """A container with these requests."""
    return {"name": "main", "resources": {"requests": amounts}}


def tainted(effect: str, key: str = NOT_READY, **taint: str) -> Obj:
    return {"taints": [{"key": key, "effect": effect, **taint}]}


def needs(*expressions: Obj, fields: list[Obj] | None = None) -> Obj:
    """Required node affinity with one term."""
    term = {**({"matchExpressions": list(expressions)} if expressions else {})}
    return terms({**term, **({"matchFields": fields} if fields else {})})


def terms(*found: Obj) -> Obj:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}
    return {"affinity": {"nodeAffinity": required}}


def near(kind: str, key: str, selector: Obj | None = APP, **term: Any) -> Obj:
    """A required term of podAffinity or podAntiAffinity."""
    entry = {"topologyKey": key, "labelSelector": selector, **term}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [entry]}}


def skew(limit: int, key: str = ZONE, **term: Any) -> Obj:
    constraint = {
        "maxSkew": limit,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": APP,
        **term,
    }
    return {"topologySpreadConstraints": [constraint]}


DEFAULTS = [
    {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    },
]


@pytest.mark.parametrize(
    ("nodes", "running", "wanted", "want"),
    [
        pytest.param(
            [machine("a", slots=2)],
            [pod("r0", requests(cpu="1"), on="a"), pod("r1", requests(cpu="1"), on="a")],
            [pod("p")],
            {},
            id="case 71: all pod slots taken, GPUs free",
        ),
        pytest.param(
            [machine("a", slots=3)],
            [pod("r0", requests(cpu="1"), on="a"), pod("r1", requests(cpu="1"), on="a")],
            [pod("p")],
            {"p": "a"},
            id="case 71: one slot left",
        ),
        pytest.param(
            [machine("a", slots=1)],
            [pod("r", on="a", phase="Succeeded")],
            [pod("p")],
            {"p": "a"},
            id="case 70: a finished pod has no slot",
        ),
        pytest.param(
            [machine("a", gpus=1)],
            [pod("r", on="a", metadata={"name": "r", "namespace": "ml", **GONE})],
            [pod("p")],
            {},
            id="case 70: a pod that is being deleted holds its GPU",
        ),
        pytest.param(
            [machine("a", gpus=2)],
            [pod(f"r{i}", on="a") for i in range(3)],
            [pod("p"), pod("q", requests(cpu="1"))],
            {"q": "a"},
            id="case 72: an overcommitted node takes cpu pods only",
        ),
        pytest.param(
            [machine("a", gpus=8)],
            [pod("r", container(gpus=4), on="a")],
            [pod("p", container(gpus=4))],
            {"p": "a"},
            id="case 73: the request equals what is free",
        ),
        pytest.param(
            [machine("a", gpus=8)],
            [pod("r", container(gpus=4), on="a")],
            [pod("p", container(gpus=5))],
            {},
            id="case 73: one more than is free",
        ),
        pytest.param(
            [machine("a")],
            [],
            [pod("p", requests(cpu="64")), pod("q", requests(cpu="1m"))],
            {"p": "a"},
            id="case 73: cpu to the last milli",
        ),
        pytest.param(
            [machine("a")],
            [],
            [pod("p", requests(memory="549755813888")), pod("q", requests(memory="1"))],
            {"p": "a"},
            id="case 73: memory to the last byte",
        ),
        pytest.param(
            [machine("a")],
            [pod("r", requests(memory="1500m"), on="a")],
            [pod("p", requests(memory="549755813886"))],
            {"p": "a"},
            id="case 68: a byte and a half is two bytes",
        ),
        pytest.param(
            [machine("a")],
            [pod("r", requests(memory="1500m"), on="a")],
            [pod("p", requests(memory="549755813887"))],
            {},
            id="case 68: and one byte more does not fit",
        ),
        pytest.param(
            [machine("a")],
            [],
            [pod("p", requests(**{"example.com/fpga": "1"}))],
            {},
            id="a resource that no node offers",
        ),
        pytest.param(
            [machine("a", gpus=2)],
            [],
            [
                pod(
                    "p",
                    container(gpus=1),
                    initContainers=[container(gpus=2), container(gpus=1, restartPolicy="Always")],
                ),
                pod("q"),
            ],
            {"p": "a"},
            id="case 65: the init container asks for more than the rest",
        ),
        pytest.param(
            [machine("a")],
            [],
            [pod("p", requests(cpu="32"), overhead={"cpu": "32"}), pod("q", requests(cpu="1m"))],
            {"p": "a"},
            id="case 66: overhead counts",
        ),
        pytest.param(
            [machine("a")],
            [pod("r", requests(cpu="1"), on="a", resources={"requests": {"cpu": "63"}})],
            [pod("p", requests(cpu="1")), pod("q", requests(cpu="1m"))],
            {"p": "a"},
            id="case 67: the pod states its own cpu",
        ),
    ],
)
def test_resources(
    nodes: list[Obj], running: list[Obj], wanted: list[Obj], want: dict[str, str]
) -> None:
    plan = ask(*nodes, *running, *wanted, objective=("max:podsPlaced",))
    found = {}
    for entry in plan.groups:
        found |= pods_of(plan, entry.group)
    assert found == want


def test_case_68_a_quantity_that_cannot_be_read_costs_the_pod_only() -> None:
    plan = ask(machine("a"), pod("bad", requests(memory="1K")), pod("good"))
    assert placed(plan) == {"ml/good": 1}
    (error,) = plan.errors
    assert (error.object, error.kind) == ("ml/bad", "Pod")
    assert "1K" in error.message


@pytest.mark.parametrize(
    ("labels", "spec", "want"),
    [
        pytest.param(
            {},
            needs({"key": "pool", "operator": "NotIn", "values": ["x"]}),
            True,
            id="case 74: NotIn, absent",
        ),
        pytest.param(
            {"pool": "x"},
            needs({"key": "pool", "operator": "NotIn", "values": ["x"]}),
            False,
            id="NotIn, listed",
        ),
        pytest.param(
            {"gen": "abc"},
            needs({"key": "gen", "operator": "Gt", "values": ["3"]}),
            False,
            id="case 74: Gt, no number",
        ),
        pytest.param(
            {"gen": "4"},
            needs({"key": "gen", "operator": "Gt", "values": ["3"]}),
            True,
            id="Gt, larger",
        ),
        pytest.param(
            {"gen": "3"},
            needs({"key": "gen", "operator": "Gt", "values": ["3"]}),
            False,
            id="Gt, equal",
        ),
        pytest.param({}, terms(), False, id="case 75: no terms"),
        pytest.param({}, terms({}), False, id="case 75: an empty term"),
        pytest.param(
            {},
            terms({}, {"matchExpressions": [{"key": HOST, "operator": "Exists"}]}),
            True,
            id="case 75: an empty term beside one that matches",
        ),
        pytest.param(
            {},
            needs(fields=[{"key": "metadata.name", "operator": "In", "values": ["a"]}]),
            True,
            id="the node by name",
        ),
        pytest.param({"pool": "x"}, {"nodeSelector": {"pool": "x"}}, True, id="nodeSelector"),
        pytest.param({"pool": "y"}, {"nodeSelector": {"pool": "x"}}, False, id="another value"),
        pytest.param(
            {"pool": "x"},
            {
                "nodeSelector": {"pool": "x"},
                **needs({"key": "pool", "operator": "NotIn", "values": ["x"]}),
            },
            False,
            id="selector and affinity both hold",
        ),
    ],
)
def test_node_affinity(labels: dict[str, str], spec: Obj, want: bool) -> None:
    plan = ask(machine("a", labels=labels), pod("p", **spec))
    assert bool(placed(plan)) == want
    assert why_not(plan) == ({} if want else {"ml/p": "impossible"})


@pytest.mark.parametrize(
    ("fields", "tolerations", "want"),
    [
        pytest.param({"unschedulable": True}, [], False, id="case 76: cordoned"),
        pytest.param(
            {"unschedulable": True},
            [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
            True,
            id="case 76: cordoned, tolerated",
        ),
        pytest.param(tainted("NoExecute"), DEFAULTS, True, id="case 77: NoExecute, 300 s"),
        pytest.param(tainted("NoExecute"), [], False, id="case 77: NoExecute, not tolerated"),
        pytest.param(tainted("NoSchedule"), DEFAULTS, False, id="case 77: the NoSchedule twin"),
        pytest.param(tainted("PreferNoSchedule"), [], True, id="PreferNoSchedule only scores"),
        pytest.param(tainted("NoSchedule"), [{"operator": "Exists"}], True, id="tolerates all"),
        pytest.param(
            tainted("NoSchedule", "team", value="a"),
            [{"key": "team", "value": "b"}],
            False,
            id="another value",
        ),
        pytest.param(
            tainted("NoSchedule", "age", value="950"),
            [{"key": "age", "operator": "Gt", "value": "900"}],
            True,
            id="case 83: 950 is more than 900",
        ),
        pytest.param(
            tainted("NoSchedule", "age", value="800"),
            [{"key": "age", "operator": "Gt", "value": "900"}],
            False,
            id="case 83: 800 is not",
        ),
    ],
)
def test_taints(fields: Obj, tolerations: list[Obj], want: bool) -> None:
    plan = ask(machine("a", **fields), pod("p", tolerations=tolerations))
    assert bool(placed(plan)) == want
    assert why_not(plan) == ({} if want else {"ml/p": "constraint"})


def test_case_83_a_toleration_behind_a_gate_makes_the_answer_conditional() -> None:
    plan = ask(
        machine("a", **tainted("NoSchedule", "age", value="950")),
        pod("p", tolerations=[{"key": "age", "operator": "Gt", "value": "900"}]),
    )
    ((group, reason),) = plan.conditional
    assert group == "ml/p"
    assert "TaintTolerationComparisonOperators" in reason


def test_case_76_pods_that_run_on_a_cordoned_node_count_as_members() -> None:
    plan = ask(
        machine("a", unschedulable=True),
        machine("b", gpus=1),
        gang("g", 2),
        pod("p0", group="g", on="a"),
        pod("p1", group="g"),
    )
    assert spread(plan) == {"b": 1}


def test_a_node_that_is_not_ready_takes_no_pod_though_no_taint_says_so() -> None:
    lost = machine("a")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    plan = ask(lost, pod("p"))
    assert why_not(plan) == {"ml/p": "constraint"}
    assert "1 node(s) were not ready" in cause_of(plan, "ml/p").details["event"]


AFFINE = near("podAffinity", ZONE)
ALONE = near("podAntiAffinity", HOST)


@pytest.mark.parametrize(
    ("running", "wanted", "want"),
    [
        pytest.param(
            [],
            [pod("p", metadata=LABELLED | {"name": "p", "namespace": "ml"}, affinity=AFFINE)],
            3,
            id="case 78: the first of its kind",
        ),
        pytest.param(
            [],
            [pod("p", affinity=AFFINE)],
            0,
            id="case 78: the first, and not of the kind it wants",
        ),
        pytest.param(
            [pod("r", on="c", metadata=LABELLED | {"name": "r", "namespace": "other"})],
            [pod("p", affinity=AFFINE)],
            0,
            id="the only match is in another namespace",
        ),
        pytest.param(
            [pod("r", on="c", metadata=LABELLED | {"name": "r", "namespace": "other"})],
            [pod("p", affinity=near("podAffinity", ZONE, namespaceSelector={}))],
            1,
            id="all namespaces",
        ),
        pytest.param(
            [pod("r", on="c", affinity=ALONE)],
            [pod("p", metadata=LABELLED | {"name": "p", "namespace": "ml"})],
            2,
            id="case 79: kept off one node of three",
        ),
    ],
)
def test_pods_near_and_far(running: list[Obj], wanted: list[Obj], want: int) -> None:
    """The pod is asked once for every node, each time with that node alone uncordoned."""
    found = 0
    for open_node in ("a", "b", "c"):
        nodes = [
            machine("a", zone="1", unschedulable=open_node != "a"),
            machine("b", zone="1", unschedulable=open_node != "b"),
            machine("c", zone="2", unschedulable=open_node != "c"),
        ]
        found += len(placed(ask(*nodes, *running, *wanted)))
    assert found == want


def test_case_78_the_second_joins_the_zone_of_the_first() -> None:
    labels = {"name": "p", "namespace": "ml", **LABELLED}
    pods = [
        pod(f"p{i}", group="g", metadata=labels | {"name": f"p{i}"}, affinity=AFFINE)
        for i in range(4)
    ]
    plan = ask(
        machine("a", 3, "1"),
        machine("b", 2, "2"),
        machine("c", 2, "2"),
        gang("g", 4),
        *pods,
    )
    assert spread(plan) == {"b": 2, "c": 2}


def test_case_79_anti_affinity_of_a_running_pod_keeps_the_newcomer_away() -> None:
    plan = ask(
        machine("a", zone="1"),
        machine("b", 1, zone="2"),
        pod("r", on="a", affinity=near("podAntiAffinity", ZONE)),
        pod("p", metadata=LABELLED | {"name": "p", "namespace": "ml"}),
        pod("q"),
        objective=("max:podsPlaced",),
    )
    assert pods_of(plan, "ml/p") == {"p": "b"}
    assert pods_of(plan, "ml/q") == {"q": "a"}


def labelled(name: str, **fields: Any) -> Obj:
    """A pod with the label that spread constraints count."""
    own = {"name": name, "namespace": "ml", **LABELLED, **fields.pop("metadata", {})}
    return pod(name, metadata=own, **fields)


ZONES = [machine("a", zone="1"), machine("b", zone="2"), machine("c", 1, zone="3")]
TWO_TWO_ONE = [
    *(labelled(f"a{i}", on="a") for i in range(2)),
    *(labelled(f"b{i}", on="b") for i in range(2)),
    labelled("c0", on="c"),
]


@pytest.mark.parametrize(
    ("nodes", "running", "spec", "want"),
    [
        pytest.param(ZONES, TWO_TWO_ONE, skew(1), {}, id="case 80: the zone with one pod is full"),
        pytest.param(
            [*ZONES[:2], machine("c", 2, zone="3")],
            TWO_TWO_ONE,
            skew(1),
            {"p": "c"},
            id="case 80: it has room",
        ),
        pytest.param(
            [*ZONES[:2], machine("c", 2, zone="3", unschedulable=True)],
            TWO_TWO_ONE,
            skew(1),
            {},
            id="a cordoned zone counts all the same",
        ),
        pytest.param(
            [*ZONES[:1], machine("c", 2, zone="3", unschedulable=True)],
            [labelled("a0", on="a")],
            skew(1, nodeTaintsPolicy="Honor"),
            {"p": "a"},
            id="a cordoned zone does not count with nodeTaintsPolicy Honor",
        ),
        pytest.param(
            [machine("a", zone="1"), machine("d")],
            [labelled("a0", on="a")],
            skew(1),
            {"p": "a"},
            id="a node without the key is no domain and takes no pod",
        ),
        pytest.param(
            [machine("a", zone="1"), machine("b", zone="2")],
            [
                labelled("a0", on="a"),
                labelled("a1", on="a", metadata=GONE),
                labelled("a2", on="a", metadata=GONE),
                labelled("b0", on="b"),
                pod("x", container(gpus=7), on="b"),
            ],
            skew(1),
            {"p": "a"},
            id="case 81: pods that are being deleted do not count",
        ),
        pytest.param(
            [machine("a", 3, zone="1"), machine("b", 1, zone="2")],
            [
                labelled("a0", on="a"),
                labelled("a1", on="a", metadata=GONE),
                labelled("a2", on="a", metadata=GONE),
                labelled("b0", on="b"),
            ],
            skew(1),
            {},
            id="case 81: but hold their room",
        ),
        pytest.param(
            [machine("a", zone="1")],
            [labelled("a0", on="a")],
            skew(1, minDomains=2),
            {},
            id="fewer domains than minDomains",
        ),
        pytest.param(
            [machine("a", zone="1"), machine("b", 0, zone="2")],
            [labelled("a0", on="a")],
            skew(1, whenUnsatisfiable="ScheduleAnyway"),
            {"p": "a"},
            id="ScheduleAnyway only scores",
        ),
    ],
)
def test_topology_spread(
    nodes: list[Obj], running: list[Obj], spec: Obj, want: dict[str, str]
) -> None:
    plan = ask(*nodes, *running, labelled("p", **spec))
    assert pods_of(plan, "ml/p") == want


def test_a_gang_spreads_its_own_pods() -> None:
    pods = [labelled(f"p{i}", group="g", **skew(1)) for i in range(5)]
    plan = ask(*ZONES[:2], gang("g", 5), *pods)
    assert sorted(spread(plan).values()) == [2, 3]


@pytest.mark.parametrize(
    ("priority", "want"),
    [
        pytest.param(5, [], id="case 82: lower"),
        pytest.param(10, [], id="case 82: equal"),
        pytest.param(11, ["ml/p"], id="case 82: higher"),
    ],
)
def test_case_82_room_that_a_nominated_pod_waits_for(priority: int, want: list[str]) -> None:
    first = pod(
        "first",
        container(gpus=8),
        priority=10,
        status={"nominatedNodeName": "a"},
        schedulerName="default-scheduler",
    )
    plan = ask(machine("a"), first, pod("p", priority=priority), groups=("ml/p",))
    assert list(placed(plan)) == want


def test_host_ports_clash_on_a_node() -> None:
    ports = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    plan = ask(
        machine("a"),
        machine("b"),
        pod("r", container(gpus=1, **ports), on="a"),
        gang("g", 2),
        pod("p0", container(gpus=1, **ports), group="g"),
        pod("p1", container(gpus=1), group="g"),
    )
    assert pods_of(plan)["p0"] == "b"


def test_a_volume_that_is_not_modelled_makes_the_answer_conditional() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    plan = ask(machine("a"), pod("p", volumes=[claim]))
    assert placed(plan) == {"ml/p": 1}
    assert [group for group, _ in plan.conditional] == ["ml/p"]


def test_priority_classes_of_pods_are_looked_up() -> None:
    high = thing("scheduling.k8s.io/v1/PriorityClass", "high", value=100)
    plan = ask(machine("a", 1), high, pod("p"), pod("q", priorityClassName="high"))
    assert placed(plan) == {"ml/q": 1}
