"""The dump reads as what it says, and its noise changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.kubectl_dump import write_dump
from data.reader import read_snapshot

if TYPE_CHECKING:
    from pathlib import Path


def test_dump(tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    write_dump(file, nodes=64, gangs=20)
    snapshot = read_snapshot([str(file)])
    own = [g for g in snapshot.groups if g.ref.startswith("bench/")]
    assert (len(snapshot.nodes), len(own), snapshot.errors) == (64, 20, ())
    pending = snapshot.pods.is_pending
    queued = [g.size for g in own]
    assert sum(queued) == sum(ref.startswith("bench/") for ref in snapshot.pods.refs)
    assert int(pending.sum()) >= sum(queued)

    pods = [o for o in json.loads(file.read_bytes())["items"] if o["kind"] == "Pod"]
    sizes = [len(json.dumps(pod, indent=4)) for pod in pods if pod["status"]["phase"] == "Running"]
    assert 6000 < sum(sizes) / len(sizes) < 8000

    again = tmp_path / "again.json"
    write_dump(again, nodes=64, gangs=20)
    assert again.read_bytes() == file.read_bytes()
