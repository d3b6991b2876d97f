"""Faulty clusters asked for evictions: a right answer that verifies, or one clear line."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from builders import RACK
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kube import GPU, Obj, composite, container, gang, node, pod, thing

from gangplan.cli import run

LOWEST, HIGHEST = -(2**31), 2**31 - 1
PRIORITIES = (LOWEST, -1, 0, 0, 1, 5, 10, 10, 2_000_001_000, HIGHEST)
CLASS = "gpu.example.com"


def ask(objects: list[Obj], *args: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of one command on a file of objects."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "objects.json")
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run([args[0], str(file), *args[1:]])
        out.seek(0)
        return status, out.read(), err.getvalue().replace(folder, "")


@st.composite
def nodes(draw: st.DrawFn) -> list[Obj]:
    """One to three nodes; some offer less than their pods hold, or nothing at all."""
    found = []
    for i in range(draw(st.integers(1, 3))):
        gpus = draw(st.sampled_from(("8", "8", "8", "8", "2")))
        offers = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: gpus}
        labels = {RACK: draw(st.sampled_from(("a", "a", "b")))}
        found.append(node(f"n{i}", labels=labels, allocatable=offers))
    return found


@st.composite
def groups(draw: st.DrawFn) -> list[Obj]:
    """Gangs and composites over each other, in circles too; parents that nobody knows."""
    parents = ("", "", "c0", "c1", "c2", "nobody")
    found: list[Obj] = []
    for i in range(draw(st.integers(0, 3))):
        spec: Obj = draw(st.sampled_from(({}, {"disruptionMode": {"all": {}}})))
        parent = draw(st.sampled_from(parents))
        linked = {**spec, **({"parentCompositePodGroupName": parent} if parent else {})}
        found.append(composite(f"c{i}", priority=draw(st.sampled_from(PRIORITIES)), **linked))
    for i in range(draw(st.integers(1, 3))):
        spec = draw(st.sampled_from(({}, {}, {"disruptionMode": {"all": {}}})))
        parent = draw(st.sampled_from(parents))
        if parent:
            spec = {
                **spec,
                "parentCompositePodGroupName": parent,
                "workloadRef": {"workloadName": "w", "templateName": "t"},
            }
        if draw(st.booleans()):
            spec = {**spec, "schedulingConstraints": {"topology": [{"key": RACK}]}}
        floor = draw(st.integers(1, 3))
        found.append(gang(f"g{i}", floor, priority=draw(st.sampled_from(PRIORITIES)), **spec))
    return found


@st.composite
def pods(draw: st.DrawFn) -> list[Obj]:
    """Pods that run, wait or are on their way, with and without what a pod should have."""
    found = []
    for i in range(draw(st.integers(2, 9))):
        name = f"p{i}"
        gpus = draw(st.sampled_from((0, 1, 2, 4, 8)))
        metadata: Obj = {"name": name, "namespace": "ml", "labels": {"app": draw(APPS)}}
        if draw(st.sampled_from((False, False, False, True))):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if draw(st.sampled_from((False, False, True))):
            # A pod may name any owner; here one that owns itself, or one that is nowhere.
            owner = draw(st.sampled_from(((name, "Pod"), ("nobody", "Job"), ("d", "DaemonSet"))))
            reference = {"kind": owner[1], "name": owner[0], "controller": True}
            metadata["ownerReferences"] = [reference]
        on = draw(st.sampled_from(("", "n0", "n0", "n0", "n1", "n1", "n2", "gone")))
        status: Obj = {}
        if on and draw(st.booleans()):
            status["startTime"] = draw(st.sampled_from(("2026-01-01T00:00:00Z", None, "soon")))
        if not on and draw(st.sampled_from((False, False, True))):
            status["nominatedNodeName"] = draw(st.sampled_from(("n0", "gone")))
        spec: Obj = {}
        if draw(st.sampled_from((False, False, True))):
            spec["preemptionPolicy"] = "Never"
        if draw(st.sampled_from((False, False, False, True))):
            spec["resourceClaims"] = [{"name": "c", "resourceClaimName": draw(CLAIMS)}]
        found.append(
            pod(
                name,
                container(gpus=gpus),
                group=draw(st.sampled_from(("", "", "g0", "g0", "g1", "g2", "nobody"))),
                on=on,
                metadata=metadata,
                status=status,
                priority=draw(st.sampled_from(PRIORITIES)),
                **spec,
            )
        )
    return found


APPS = st.sampled_from(("a", "b"))
CLAIMS = st.sampled_from(("held", "fresh", "nobody"))


@st.composite
def budgets(draw: st.DrawFn) -> list[Obj]:
    """Budgets that overlap, are late, select nobody, or allow less than nothing."""
    selectors: tuple[Any, ...] = (
        {"matchLabels": {"app": "a"}},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        {},
        None,
    )
    found = []
    for i in range(draw(st.integers(0, 3))):
        status = draw(
            st.sampled_from(
                (
                    {"disruptionsAllowed": 0},
                    {"disruptionsAllowed": 1},
                    {"disruptionsAllowed": 2, "observedGeneration": 1},
                    {"disruptionsAllowed": -3},
                    {"disruptionsAllowed": 1, "disruptedPods": {"p0": "2026-01-01T00:00:00Z"}},
                    {},
                )
            )
        )
        found.append(
            thing(
                "policy/v1/PodDisruptionBudget",
                f"b{i}",
                "ml",
                metadata={"generation": 2},
                spec={"selector": draw(st.sampled_from(selectors))},
                status=status,
            )
        )
    return found


def claims() -> list[Obj]:
    """A claim with an allocation, one without, and one device on every node."""
    request = {"name": "r", "exactly": {"deviceClassName": CLASS, "count": 1}}
    spec = {"devices": {"requests": [request]}}
    result = {"request": "r", "driver": CLASS, "pool": "n0", "device": "d0"}
    allocation = {"devices": {"results": [result]}}
    api = "resource.k8s.io/v1"
    return [
        thing(f"{api}/DeviceClass", CLASS),
        thing(f"{api}/ResourceClaim", "held", "ml", spec=spec, status={"allocation": allocation}),
        thing(f"{api}/ResourceClaim", "fresh", "ml", spec=spec),
        thing(
            f"{api}/ResourceSlice",
            "s0",
            spec={
                "driver": CLASS,
                "nodeName": "n0",
                "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "d0"}, {"name": "d1"}],
            },
        ),
    ]


@st.composite
def clusters(draw: st.DrawFn) -> list[Obj]:
    """All of these, and a gang that is as it should be; one object may be there twice."""
    objects = [*draw(nodes()), *draw(groups()), *draw(pods()), *draw(budgets()), *claims()]
    gpus, count = draw(st.sampled_from(((8, 1), (8, 2), (4, 3), (2, 5))))
    objects.append(gang("new", draw(st.integers(1, count)), priority=10))
    objects += [
        pod(f"new{i}", container(gpus=gpus), group="new", priority=10) for i in range(count)
    ]
    if draw(st.sampled_from((False, False, False, True))):
        objects.append(draw(st.sampled_from(objects)))
    return objects


ARGUMENTS = (
    ("place", "--preempt"),
    ("place", "--preempt", "--pdb", "hard"),
    ("place", "--preempt", "--release", "1.36"),
    ("place", "--preempt", "--objective", "max:gpusPlaced,min:weightedVictimGpus"),
    ("place", "--preempt", "--policy", "replay"),
    ("place", "--preempt", "--policy", "replay", "--release", "1.36"),
    ("place", "--preempt", "--policy", "compare"),
    ("explain", "--preempt"),
    ("preempt", "--group", "ml/new"),
    ("preempt", "--group", "ml/g0", "--group", "ml/new"),
)


@given(clusters(), st.sampled_from(ARGUMENTS))
@settings(max_examples=120, suppress_health_check=list(HealthCheck), deadline=None)
def test_answers_or_one_line(objects: list[Obj], args: tuple[str, ...]) -> None:
    status, out, err = ask(objects, *args, "-o", "json", "--quiet")
    lines = err.splitlines()
    assert all(line.startswith("error: ") for line in lines)
    if status == 2:
        # The group asked for may be one that was set aside: then its line and this one.
        assert (out, bool(lines)) == ("", True)
        return
    assert status == 0
    plan = json.loads(out)
    assert plan["verification"]["violations"] == []
    _check_victims(objects, plan, args)


def _check_victims(objects: list[Obj], plan: Obj, args: tuple[str, ...]) -> None:
    """Check victims against the objects themselves, with no code of the project."""
    by_name = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "Pod"}
    rank = {entry["group"]: entry["priority"] for entry in plan["groups"]}
    placed = {entry["group"] for entry in plan["groups"] if entry["outcome"] == "placed"}
    gone = [eviction["pod"] for eviction in plan["evictions"]]
    assert len(gone) == len(set(gone))
    for eviction in plan["evictions"]:
        victim = by_name[eviction["pod"].partition("/")[2]]
        assert victim["spec"]["nodeName"] == eviction["node"]
        assert "deletionTimestamp" not in victim["metadata"]
        owners = victim["metadata"].get("ownerReferences", [])
        # kube-scheduler spares nobody for its owner.
        assert "replay" in args or all(owner["kind"] != "DaemonSet" for owner in owners)
        if eviction["for"] in rank:
            assert eviction["for"] in placed
            if "schedulingGroup" not in victim["spec"]:
                assert victim["spec"]["priority"] < rank[eviction["for"]]
    if "hard" in args:
        assert plan["criteria"]["pdbViolations"] == 0


@given(clusters(), st.randoms(use_true_random=False))
@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
def test_order_of_objects_decides_nothing(objects: list[Obj], rng: Any) -> None:
    names = [(obj["kind"], obj["metadata"]["name"]) for obj in objects]
    first = [obj for i, obj in enumerate(objects) if names.index(names[i]) == i]
    other = list(first)
    rng.shuffle(other)
    assert _plan(first) == _plan(other)


def _plan(objects: list[Obj]) -> Obj:
    """The answer; complaints come in the order of the file, so they are sorted here."""
    status, out, _ = ask(objects, "place", "--preempt", "-o", "json", "--quiet")
    plan: Obj = json.loads(out) if out else {}
    plan["errors"] = sorted(map(str, plan.get("errors", ())))
    plan["warnings"] = sorted(plan.get("warnings", ()))
    return {"status": status, **plan}


FULL = pod("v", container(gpus=8), on="n0", priority=1)
NEW = [gang("g", 1, priority=10), pod("g0", container(gpus=8), group="g", priority=10)]


def budget(**fields: Any) -> Obj:
    return thing("policy/v1/PodDisruptionBudget", "b", "ml", **fields)


def running(name: str, gpus: int, **fields: Any) -> Obj:
    return pod(name, container(gpus=gpus), on=fields.pop("on", "n0"), **fields)


@pytest.mark.parametrize(
    ("objects", "args", "want_victims"),
    [
        pytest.param([node(), FULL, *NEW], [], ["v"], id="nothing wrong"),
        pytest.param(
            [node(), running("v", 8, status={"startTime": None}), *NEW],
            [],
            ["v"],
            id="no start time",
        ),
        pytest.param(
            [node(), running("v", 8, priority=LOWEST), *NEW], [], ["v"], id="lowest priority"
        ),
        pytest.param(
            [
                node(),
                running("v", 8, priority=HIGHEST - 1),
                gang("g", 1, priority=HIGHEST),
                pod("g0", container(gpus=8), group="g", priority=HIGHEST),
            ],
            [],
            ["v"],
            id="highest priorities there are",
        ),
        pytest.param(
            [node(), running("v", 8, priority=HIGHEST), *NEW], [], [], id="nobody is above it"
        ),
        pytest.param(
            [node(allocatable={"cpu": "64", "memory": "1Ti", "pods": "9", GPU: "4"}), FULL, *NEW],
            [],
            [],
            id="a node that lost devices takes no pod of eight however empty",
        ),
        pytest.param(
            [
                node(allocatable={"cpu": "64", "memory": "1Ti", "pods": "9", GPU: "4"}),
                running("v", 4, priority=1),
                running("w", 4, priority=1),
                gang("g", 1, priority=10),
                pod("g0", container(gpus=4), group="g", priority=10),
            ],
            [],
            ["v", "w"],
            id="overcommitted: both go, one for the debt",
        ),
        pytest.param(
            [node(), running("v", 8, on="gone"), running("w", 8, priority=1), *NEW],
            [],
            ["w"],
            id="a pod on a node that is missing frees nothing",
        ),
        pytest.param(
            [
                node(),
                running("z", 0, priority=1),
                running("v", 8, priority=1),
                *NEW,
            ],
            [],
            ["v"],
            id="a pod that asks for nothing stays",
        ),
        pytest.param(
            [node(), FULL, budget(spec={}, status={"disruptionsAllowed": 0}), *NEW],
            ["--pdb", "hard"],
            ["v"],
            id="a budget without a selector protects nobody",
        ),
        pytest.param(
            [node(), FULL, budget(spec={"selector": {}}), *NEW],
            ["--pdb", "hard"],
            [],
            id="a budget without a status allows nobody",
        ),
        pytest.param(
            [
                node(),
                running(
                    "v", 8, priority=1, resourceClaims=[{"name": "c", "resourceClaimName": "x"}]
                ),
                *NEW,
            ],
            [],
            ["v"],
            id="a claim that points nowhere keeps no victim",
        ),
        pytest.param([node(), FULL, FULL, *NEW], [], ["v"], id="a pod listed twice is one pod"),
    ],
)
def test_faults_with_a_right_answer(
    objects: list[Obj], args: list[str], want_victims: list[str]
) -> None:
    status, out, _ = ask(objects, "place", "--preempt", "-o", "json", "--quiet", *args)
    plan = json.loads(out)
    assert status == 0
    assert [e["pod"].removeprefix("ml/") for e in plan["evictions"]] == want_victims
    assert plan["verification"]["valid"]


@pytest.mark.parametrize(
    ("objects", "want_error"),
    [
        pytest.param(
            [node(), FULL, budget(spec={"selector": {}}, status={"disruptionsAllowed": -1}), *NEW],
            "PodDisruptionBudget ml/b: status.disruptionsAllowed",
            id="a budget below zero",
        ),
        pytest.param(
            [node(), running("v", 8, priority=2**31), *NEW],
            "Pod ml/v: spec.priority",
            id="a priority that no int32 holds",
        ),
    ],
)
def test_faults_that_are_told(objects: list[Obj], want_error: str) -> None:
    status, out, err = ask(objects, "place", "--preempt", "-o", "json", "--quiet")
    assert status == 0
    assert json.loads(out)["verification"]["valid"]
    assert any(want_error in line for line in err.splitlines())
    assert ask(objects, "place", "--preempt", "--strict", "--quiet")[0] == 2


def circle(**spec: Any) -> list[Obj]:
    """Two composites above one another, and a gang below one of them."""
    link = {"workloadRef": {"workloadName": "w", "templateName": "t"}}
    return [
        composite("c", parentCompositePodGroupName="d", **spec),
        composite("d", parentCompositePodGroupName="c", **spec),
        gang("h", 1, parentCompositePodGroupName="c", **link),
    ]


def test_circle_of_composites_that_waits_is_refused() -> None:
    objects = [node(), FULL, *circle(priority=10), pod("h0", group="h", priority=10)]
    status, out, _ = ask(objects, "place", "--preempt", "-o", "json", "--quiet")
    plan = json.loads(out)
    (entry,) = plan["groups"]
    assert (status, plan["evictions"], entry["cause"]["is"]) == (0, [], "refused")
    assert "its parents form a cycle: ml/c -> ml/d -> ml/c" in entry["cause"]["message"]


def test_circle_of_composites_that_runs_may_go() -> None:
    """Its pods are victims like others, one by one or as what is left of a unit."""
    whole = {"disruptionMode": {"all": {}}, "priority": 1}
    objects = [
        node(),
        *circle(**whole),
        running("h0", 4, group="h", priority=1),
        running("h1", 4, group="h", priority=1),
        *NEW,
    ]
    status, out, _ = ask(objects, "place", "--preempt", "-o", "json", "--quiet")
    plan = json.loads(out)
    assert (status, plan["verification"]["valid"]) == (0, True)
    assert [eviction["pod"] for eviction in plan["evictions"]] == ["ml/h0", "ml/h1"]
