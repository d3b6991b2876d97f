"""Scenarios files: matrices and random draws written out, mistakes named by scenario and path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import RACK, make_node, make_snapshot

from data.scenarios.read import expand_scenarios, read_scenarios
from data.scenarios.wire import scenario_schema
from topology.errors import RequestError

FLEET = make_snapshot([make_node(f"n{i}", rack=f"r{i // 2}") for i in range(6)])
SCHEMA = Path(__file__).parents[3] / "docs" / "whatif.schema.json"


def expand(*entries: dict[str, Any]) -> list[Any]:
    return expand_scenarios(list(entries), FLEET)


def test_a_matrix_is_crossed_last_key_fastest() -> None:
    found = expand(
        {
            "name": "p",
            "matrix": {"mode": ["all", "single"], "times": [1, 2]},
            "set": {"group": "ml/a", "disruptionMode": "${mode}"},
            "groups": {"add": {"like": "ml/a", "times": "${times}"}},
        }
    )
    assert [scenario.name for scenario in found] == [
        "p[mode=all,times=1]",
        "p[mode=all,times=2]",
        "p[mode=single,times=1]",
        "p[mode=single,times=2]",
    ]
    assert found[1].groups.add.times == 2
    assert found[2].set.disruptionMode == "single"


def test_variables_in_the_name_replace_the_suffix() -> None:
    found = expand({"name": "racks-${k}", "matrix": {"k": [3, 4]}, "cordon": ["n${k}"]})
    assert [(s.name, s.cordon) for s in found] == [("racks-3", ["n3"]), ("racks-4", ["n4"])]


def test_random_failures_are_drawn_from_the_domains_there_are() -> None:
    entry = {"name": "loss", "random": {"fail": {"level": RACK, "count": 2}, "samples": 3}}
    found = expand(entry)
    assert [scenario.name for scenario in found] == ["loss-0", "loss-1", "loss-2"]
    assert all(len(s.fail) == 2 and s.fail[0] != s.fail[1] for s in found)
    assert {value for s in found for one in s.fail for value in one.values()} <= {"r0", "r1", "r2"}
    assert expand(entry) == found


def test_more_samples_keep_the_earlier_ones() -> None:
    few, many = (
        expand({"name": "x", "random": {"fail": {"level": "node"}, "samples": n}}) for n in (4, 9)
    )
    assert [s.fail for s in many[:4]] == [s.fail for s in few]


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        pytest.param({"add": {}}, "scenario 1: Object missing required field `name`", id="no name"),
        pytest.param(
            {"name": "a", "darin": ["n1"]},
            "scenario a: Object contains unknown field `darin`",
            id="misspelt",
        ),
        pytest.param(
            {"name": "a", "add": {"nodes": 0, "name": "x"}},
            "scenario a: Expected `int` >= 1 - at `$.add.nodes`",
            id="no nodes at all",
        ),
        pytest.param(
            {"name": "a", "matrix": {"k": []}}, "scenario a: matrix: write a list", id="empty list"
        ),
        pytest.param(
            {"name": "a-${j}", "matrix": {"k": [1]}},
            "scenario a-${j}: ${j}: is not in the matrix",
            id="unknown variable",
        ),
        pytest.param(
            {"name": "a", "random": {"fail": {"level": "row"}, "samples": 1}},
            "no node has the label 'row'",
            id="unknown level",
        ),
        pytest.param(
            {"name": "a", "random": {"fail": {"level": RACK, "count": 4}, "samples": 1}},
            "is 4, of 3 there are",
            id="more than there are",
        ),
        pytest.param(
            {"name": "a", "matrix": {"x": list(range(400)), "y": list(range(400))}},
            "more than 100000 scenarios",
            id="too many",
        ),
    ],
)
def test_mistakes_are_named(entry: dict[str, Any], want: str) -> None:
    with pytest.raises(RequestError) as problem:
        expand(entry)
    assert want in str(problem.value)


def test_two_scenarios_of_one_name_are_refused() -> None:
    with pytest.raises(RequestError, match="scenario a: the name is taken"):
        expand({"name": "a"}, {"name": "a"})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", "holds 0 documents", id="empty"),
        pytest.param("- name: a\n---\n- name: b\n", "holds 2 documents", id="two documents"),
        pytest.param("name: a\n", "unknown key 'name'", id="no list"),
        pytest.param("[]", "holds no list of scenarios", id="nothing in the list"),
        pytest.param("- {name: a", "is not valid YAML", id="not YAML"),
    ],
)
def test_files_that_hold_no_scenarios(tmp_path: Path, text: str, want: str) -> None:
    file = tmp_path / "scenarios.yaml"
    file.write_text(text)
    with pytest.raises(RequestError) as problem:
        read_scenarios(str(file), FLEET)
    assert str(problem.value).startswith(f"{file}: ")
    assert want in str(problem.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(RequestError, match=r"nowhere\.yaml: cannot be read: No such file"):
        read_scenarios("nowhere.yaml", FLEET)


def test_manifest_files_lie_beside_the_scenarios_file(tmp_path: Path) -> None:
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
    (tmp_path / "gang.yaml").write_text(yaml.safe_dump(group))
    file = tmp_path / "scenarios.yaml"
    file.write_text("scenarios:\n- name: a\n  groups: {add: {manifest: gang.yaml}}\n")
    assert read_scenarios(str(file), FLEET)[0].groups.add.manifest == [group]


def test_the_schema_for_editors_is_that_of_the_types() -> None:
    assert json.loads(SCHEMA.read_text()) == scenario_schema()
