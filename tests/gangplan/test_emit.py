"""Plans handed over as scripts and manifests."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml
from builders import make_group, make_node, make_pods, make_snapshot
from plan_builders import make_plan
from repacking import ask_moves

from gangplan.emit import emit_plan
from topology.model import HOSTNAME
from topology.move_request import MoveRequest
from topology.plan import Move

if TYPE_CHECKING:
    from pathlib import Path

    from topology.model import Snapshot
    from topology.plan import Plan

HOSTILE = "$(touch gotcha)`touch gotcha`';touch gotcha;'\n touch gotcha #"


def make_fleet(api: str = "scheduling.k8s.io/v1beta1/PodGroup") -> Snapshot:
    return make_snapshot(
        [make_node("a"), make_node("b")],
        make_pods("g", 1, group="ml/g", on="a", template="leader"),
        make_pods("w", 1, group="ml/g", on="a", template="worker"),
        groups=[make_group("ml/g", 2, disruption="all", api=api)],
    )


def test_kubectl() -> None:
    snapshot = make_fleet()
    text = emit_plan(snapshot, ask_moves(snapshot, drain=["a"]), "kubectl")
    commands = [line for line in text.splitlines() if line.startswith(("kubectl", "printf"))]
    assert commands[0] == "kubectl cordon -- a"
    assert [line.rpartition("--raw ")[2] for line in commands if "eviction" in line] == [
        "/api/v1/namespaces/ml/pods/g-0/eviction -f -",
        "/api/v1/namespaces/ml/pods/w-0/eviction -f -",
    ]
    assert "uncordon" not in text  # a drained node stays cordoned


def test_lws_deletes_the_leader_alone() -> None:
    snapshot = make_fleet("leaderworkerset.x-k8s.io/v1/LeaderWorkerSet")
    text = emit_plan(snapshot, ask_moves(snapshot, drain=["a"]), "lws")
    assert text.count("/eviction") == 1
    assert "/pods/g-0/eviction" in text


def test_patches() -> None:
    snapshot = make_fleet()
    found = list(
        yaml.safe_load_all(emit_plan(snapshot, ask_moves(snapshot, drain=["a"]), "patches"))
    )
    assert [(d["target"]["name"], d["patch"]["spec"]["nodeSelector"]) for d in found] == [
        ("g-0", {HOSTNAME: "b"}),
        ("w-0", {HOSTNAME: "b"}),
    ]


def test_kueue() -> None:
    snapshot = make_fleet("kueue.x-k8s.io/v1beta2/Workload")
    (found,) = yaml.safe_load_all(emit_plan(snapshot, ask_moves(snapshot, drain=["a"]), "kueue"))
    sets = found["status"]["admission"]["podSetAssignments"]
    assert [s["name"] for s in sets] == ["leader", "worker"]
    (part,) = sets[0]["topologyAssignment"]["slices"]
    assert part["valuesPerLevel"] == [{"individual": {"roots": ["b"]}}]
    assert part["podCounts"] == {"individual": [1]}


def make_hostile() -> tuple[Snapshot, Plan]:
    snapshot = make_snapshot(
        [make_node(f"a{HOSTILE}"), make_node(f"-b{HOSTILE}")],
        make_pods(f"p{HOSTILE}", 1, on=f"a{HOSTILE}"),
    )
    move = Move(1, 1, f"ml/p{HOSTILE}-0", f"a{HOSTILE}", f"-b{HOSTILE}", "live")
    plan = make_plan(snapshot, {}, moves=[move], move=MoveRequest(drain=(f"a{HOSTILE}",)))
    return snapshot, replace(plan, groups=())


@pytest.mark.parametrize("form", ["kubectl", "lws"])
def test_scripts_are_safe_against_hostile_names(form: str, tmp_path: Path) -> None:
    snapshot, plan = make_hostile()
    script = tmp_path / "plan.sh"
    script.write_text(emit_plan(snapshot, plan, form))  # type: ignore[arg-type]
    # Stands in for kubectl: notes what it is called with, one argument a line.
    fake = tmp_path / "kubectl"
    fake.write_text(
        '#!/bin/sh\nprintf "%s\\0" "$@" >> "$0.called"\n'
        'case "$*" in *"-f -") cat > /dev/null;; esac\n'
    )
    fake.chmod(0o755)
    ran = subprocess.run(
        ["bash", str(script)],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        input="\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not (tmp_path / "gotcha").exists()
    called = (tmp_path / "kubectl.called").read_text().split("\0")
    assert called[:3] == ["cordon", "--", f"a{HOSTILE}"]
