from __future__ import annotations

from typing import Any

import pytest
from kube import complaints, container, find_pod, pod, read, thing

from topology.model import (
    AffinityTerm,
    HostPort,
    LabelSelector,
    Requirement,
    SelectorTerm,
    SpreadTerm,
    Toleration,
)

Obj = dict[str, Any]
APP_WEB = LabelSelector((Requirement("app", "In", ("web",)),))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node_affinity(*terms: Obj) -> Obj:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def rule(operator: str, *values: str, key: str = "k") -> Obj:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("affinity", "want_terms"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"nodeAffinity": {}}, None, id="only preferred"),
        pytest.param(node_affinity(), (), id="case 75: empty list matches no node"),
        pytest.param(node_affinity({}), (SelectorTerm(),), id="an empty term matches no node"),
        pytest.param(
            node_affinity({"matchExpressions": [rule("NotIn", "b", "a"), rule("Gt", "5")]}),
            (
                SelectorTerm(
                    (Requirement("k", "Gt", ("5",)), Requirement("k", "NotIn", ("a", "b")))
                ),
            ),
            id="case 74: NotIn and Gt",
        ),
        pytest.param(
            node_affinity({"matchFields": [rule("In", "n0", key="metadata.name")]}, {}),
            (SelectorTerm((), (Requirement("metadata.name", "In", ("n0",)),)), SelectorTerm()),
            id="fields; terms are alternatives",
        ),
        pytest.param(
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}, (), id="null terms"
        ),
    ],
)
def test_node_terms(affinity: Obj, want_terms: object) -> None:
    spec = find_pod(read(pod("p", affinity=affinity))).spec
    assert spec.node_terms == want_terms
    assert spec.unmodelled == ()


def test_a_bound_daemon_pod_forgets_its_node_affinity() -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]
    pins = [
        node_affinity({"matchFields": [rule("In", name, key="metadata.name")]})
        for name in ("n0", "n1")
    ]
    bound = [
        pod(f"b{i}", on=f"n{i}", affinity=pins[i], metadata={"ownerReferences": owner})
        for i in range(2)
    ]
    waiting = pod("w", affinity=pins[0], metadata={"ownerReferences": owner})
    snapshot = read(*bound, waiting)
    assert find_pod(snapshot, "ml/b0").spec is find_pod(snapshot, "ml/b1").spec
    assert find_pod(snapshot, "ml/b0").spec.node_terms is None
    assert find_pod(snapshot, "ml/w").spec.node_terms is not None


@pytest.mark.parametrize(
    ("toleration", "want", "want_unmodelled"),
    [
        pytest.param({"operator": "Exists"}, Toleration("", "Exists"), 0, id="everything"),
        pytest.param(
            {"key": "a", "value": "b"}, Toleration("a", "Equal", "b"), 0, id="Equal by default"
        ),
        pytest.param(
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            Toleration("a", "Exists", "", "NoExecute"),
            0,
            id="case 77: not-ready for a while",
        ),
        pytest.param(
            {"key": "a", "operator": "Gt", "value": "900"},
            Toleration("a", "Gt", "900"),
            1,
            id="case 83: comparison is conditional",
        ),
        pytest.param(
            {"key": "a", "operator": "Like"},
            Toleration("a", "Like"),
            1,
            id="operator of the future",
        ),
    ],
)
def test_tolerations(toleration: Obj, want: Toleration, want_unmodelled: int) -> None:
    spec = find_pod(read(pod("p", tolerations=[toleration, toleration]))).spec
    assert spec.tolerations == (want,)
    assert len(spec.unmodelled) == want_unmodelled


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"ports": [{"containerPort": 80}]}, (), id="no host port"),
        pytest.param(
            {"ports": [{"containerPort": 80, "hostPort": 8080}]}, (HostPort(8080),), id="host port"
        ),
        pytest.param(
            {"ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
            (HostPort(53, "UDP", "10.0.0.1"),),
            id="one address",
        ),
    ],
)
def test_host_ports(fields: Obj, want: tuple[HostPort, ...]) -> None:
    assert find_pod(read(pod("p", container(**fields)))).spec.host_ports == want


def test_on_the_host_network_every_port_is_one_of_the_host() -> None:
    ports = [{"containerPort": 80}]
    side = container(restartPolicy="Always", ports=[{"containerPort": 81}])
    first = container(ports=[{"containerPort": 82}])
    obj = pod("p", container(ports=ports), initContainers=[side, first], hostNetwork=True)
    assert find_pod(read(obj)).spec.host_ports == (HostPort(80), HostPort(81))


def spread(**fields: Any) -> Obj:
    return {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **fields,
    }


@pytest.mark.parametrize(
    ("constraint", "want"),
    [
        pytest.param(spread(), (SpreadTerm("zone", 1, APP_WEB),), id="case 80: defaults"),
        pytest.param(spread(whenUnsatisfiable="ScheduleAnyway"), (), id="only scores"),
        pytest.param(
            spread(minDomains=3, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"),
            (SpreadTerm("zone", 1, APP_WEB, 3, honor_affinity=False, honor_taints=True),),
            id="policies",
        ),
        pytest.param(
            spread(labelSelector=None), (SpreadTerm("zone", 1, None),), id="null selects nothing"
        ),
        pytest.param(
            spread(labelSelector={}),
            (SpreadTerm("zone", 1, LabelSelector()),),
            id="empty selects all",
        ),
        pytest.param(
            spread(labelSelector={}, matchLabelKeys=["hash", "absent"]),
            (SpreadTerm("zone", 1, LabelSelector((Requirement("hash", "In", ("h1",)),))),),
            id="own value of a key",
        ),
    ],
)
def test_spread(constraint: Obj, want: tuple[SpreadTerm, ...]) -> None:
    obj = pod("p", topologySpreadConstraints=[constraint], metadata={"labels": {"hash": "h1"}})
    assert find_pod(read(obj)).spec.spread == want


def term(**fields: Any) -> Obj:
    return {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "web"}}, **fields}


NAMESPACES = [
    thing("v1/Namespace", "ml"),
    thing("v1/Namespace", "a", metadata={"labels": {"team": "x"}}),
    thing("v1/Namespace", "b", metadata={"labels": {"team": "x"}}),
]


@pytest.mark.parametrize(
    ("fields", "objects", "want", "want_unmodelled"),
    [
        pytest.param({}, [], AffinityTerm("host", APP_WEB, ("ml",)), 0, id="own namespace"),
        pytest.param(
            {"namespaces": ["b", "a"]},
            [],
            AffinityTerm("host", APP_WEB, ("a", "b")),
            0,
            id="listed",
        ),
        pytest.param(
            {"namespaceSelector": {}},
            [],
            AffinityTerm("host", APP_WEB, (), all_namespaces=True),
            0,
            id="all namespaces",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "x"}}, "namespaces": ["c"]},
            NAMESPACES,
            AffinityTerm("host", APP_WEB, ("a", "b", "c")),
            0,
            id="selected and listed",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "x"}}},
            [],
            AffinityTerm("host", APP_WEB, ()),
            1,
            id="selected, but no Namespace objects",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}}},
            [],
            AffinityTerm("host", APP_WEB, ("a",)),
            0,
            id="by name, which needs no objects",
        ),
        pytest.param(
            {"labelSelector": None}, [], AffinityTerm("host", None, ("ml",)), 0, id="null selector"
        ),
        pytest.param(
            {"labelSelector": {}, "matchLabelKeys": ["hash"], "mismatchLabelKeys": ["job", "none"]},
            [],
            AffinityTerm(
                "host",
                LabelSelector(
                    (Requirement("hash", "In", ("h1",)), Requirement("job", "NotIn", ("j1",)))
                ),
                ("ml",),
            ),
            0,
            id="own values of keys",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_pod_affinity(
    kind: str, fields: Obj, objects: list[Obj], want: AffinityTerm, want_unmodelled: int
) -> None:
    labels = {"hash": "h1", "job": "j1"}
    obj = pod("p", affinity={kind: {REQUIRED: [term(**fields)]}}, metadata={"labels": labels})
    spec = find_pod(read(obj, *objects)).spec
    assert (spec.affinity or spec.anti_affinity) == (want,)
    assert bool(spec.affinity) == (kind == "podAffinity")
    assert len(spec.unmodelled) == want_unmodelled


def test_pods_with_other_values_of_a_key_have_other_specs() -> None:
    pods = [
        pod(
            f"p{i}",
            topologySpreadConstraints=[spread(labelSelector={}, matchLabelKeys=["hash"])],
            metadata={"labels": {"hash": f"h{i % 2}", "other": str(i)}},
        )
        for i in range(4)
    ]
    assert len(read(*pods).pods.specs) == 2


def test_an_unknown_operator_makes_the_pod_conditional() -> None:
    obj = pod("p", affinity=node_affinity({"matchExpressions": [rule("Near", "a")]}))
    snapshot = read(obj)
    assert complaints(snapshot) == []
    assert find_pod(snapshot).spec.unmodelled == ("selector operator 'Near' is not known",)
