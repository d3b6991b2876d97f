"""What may load what: heavy libraries load only where they are needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from topology.plan import Plan, Request

ROOT = Path(__file__).parent.parent
CASE = ROOT / "tests/cases/import-usage-accounting/snapshot.yaml"
HEAVY = ("jax", "scipy", "ray", "networkx", "pyarrow", "msgspec", "yaml", "rich", "numpy")


def find_loaded(code: str) -> set[str]:
    """Run code in a fresh interpreter and return which heavy libraries it loaded."""
    code += "\nimport sys; print(); print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(ran.stdout.splitlines()[-1].split()) & set(HEAVY)


def call(*args: str) -> str:
    return f"from gangplan.cli import run; assert run({list(args)!r}) == 0"


@pytest.mark.parametrize(
    ("code", "want_absent"),
    [
        pytest.param(
            "import topology.model, topology.plan", set(HEAVY) - {"numpy"}, id="vocabulary"
        ),
        pytest.param("import optimizer.verify", set(HEAVY) - {"numpy"}, id="verifier"),
        pytest.param("import gangplan", set(HEAVY), id="Python API"),
        pytest.param("import gangplan.cli", set(HEAVY), id="command line"),
        pytest.param(call("--help"), set(HEAVY), id="help"),
        pytest.param(call("place", "--help"), set(HEAVY), id="help of a command"),
        pytest.param(
            call("inspect", str(CASE)), {"jax", "scipy", "ray", "networkx", "rich"}, id="inspect"
        ),
    ],
)
def test_loads_nothing_heavy(code: str, want_absent: set[str]) -> None:
    assert find_loaded(code) & want_absent == set()


def test_verify_loads_nothing_heavy(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    summary = {"digest": "sha256:0", "release": "1.37", "nodes": 2, "pods": 0, "groups": 0}
    file.write_text(json.dumps(Plan(Request(), summary).to_dict()))
    loaded = find_loaded(call("verify", str(CASE), "--plan", str(file)))
    assert loaded & {"jax", "scipy", "ray", "networkx", "rich"} == set()
