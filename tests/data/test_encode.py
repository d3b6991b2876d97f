from __future__ import annotations

import json

import yaml

from data.encode import to_json, to_yaml

ANSWER = {"kind": "Plan", "groups": [{"group": "ml/ä", "pods": ()}], "bound": None, "on": "no"}


def test_json_keeps_order_and_ends_in_a_newline() -> None:
    text = to_json(ANSWER)
    assert text.decode() == json.dumps(ANSWER, indent=2, ensure_ascii=False) + "\n"


def test_json_on_one_line() -> None:
    assert to_json({"a": [1, 2]}, indent=0) == b'{"a":[1,2]}\n'


def test_yaml_says_the_same() -> None:
    text = to_yaml(ANSWER)
    assert yaml.safe_load(text) == {**ANSWER, "groups": [{"group": "ml/ä", "pods": []}]}
    assert text.startswith(b"kind: Plan\ngroups:\n")
