"""README shows what the commands really print; `--update-golden` writes it anew."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def split_commands(block: str) -> list[str]:
    """Return the commands of a transcript; a line that ends in a backslash goes on."""
    joined = block.replace("\\\n", "\\\0")
    return [
        line.removeprefix("$ ").replace("\\\0", "\\\n")
        for line in joined.splitlines()
        if line.startswith("$ ")
    ]


def replay(command: str, folder: Path) -> str:
    """Run a command as README shows it and return what it prints."""
    ran = subprocess.run(
        ["bash", "-c", f'gangplan() {{ "{sys.executable}" -m gangplan "$@"; }}\n{command}'],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return f"$ {command}\n{ran.stdout}"


def test_transcripts(tmp_path: Path, update_golden: bool) -> None:
    text = README.read_text()
    blocks = BLOCK.findall(text)
    assert blocks
    found = ["".join(replay(c, tmp_path) for c in split_commands(block)) for block in blocks]
    if update_golden:
        outputs = iter(found)
        README.write_text(BLOCK.sub(lambda match: f"```console\n{next(outputs)}```", text))
        pytest.skip("README was written anew")
    assert found == blocks


def test_python_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    sample = (ROOT / "tests/cases/place-fragmented-racks/snapshot.yaml").read_text()
    items = {"apiVersion": "v1", "kind": "List", "items": list(yaml.safe_load_all(sample))}
    (tmp_path / "cluster.json").write_text(json.dumps(items))
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[0].startswith("work/train-")
