"""The page: what it says, that names stay names, and that it stays small."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec
from plan_builders import make_plan
from report_builders import make_fleet, make_full_plan

import gangplan
from gangplan.reporting.page import build_page
from gangplan.reporting.plan_sections import CAUSES
from gangplan.reporting.source import read_source
from topology.errors import RequestError
from topology.plan import CauseName

CASES = Path(__file__).parents[2] / "cases"
EMPTY = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}


class Reader(HTMLParser):
    """Elements of a page, in order; fails where they do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        assert not ("p" in self._open and tag in {"p", "div", "ul", "details", "table"})
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_every_part_is_there() -> None:
    snapshot = make_fleet()
    page = Reader(gangplan.report(make_full_plan(snapshot), snapshot))
    for want_text in (
        "Re-packing plan",
        "Nothing has been placed, evicted or moved: this is a plan.",
        "Groups placed 1 of 2 2 of 3 pods",
        "Proof bound gpusPlaced 4: no plan beats 5, gap 25.0 %",
        "Would be evicted 2 pods in 1 unit",
        "Would move 1 pod 1 move in 1 wave 1 GPU moved",
        "Free GPUs 11 of 16 wholly free nodes: 2",
        "✗ not valid 7 checks, 1 violation",
        "This plan must not be carried out.",
        "1 invalid object, 1 conditional group, 1 warning",
        "busy 1 group: too little is free",
        "1. n3 → n2",
        "Planned placements",
        "4 GPUs in 2 pods",
        "rack r0 : 2 nodes, 4 of 8 GPUs free",
        "How good it is",
    ):
        assert want_text in page.text, want_text


def test_a_plan_alone_says_what_is_missing() -> None:
    page = Reader(gangplan.report(make_full_plan(make_fleet())))
    assert "Give --snapshot to draw the whole fleet." in page.text
    assert "Topology" not in page.text
    assert "not known" in page.text  # priorities of victims


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_the_page_stands_alone(with_snapshot: bool) -> None:
    snapshot = make_fleet()
    text = gangplan.report(make_full_plan(snapshot), snapshot if with_snapshot else None)
    page = Reader(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    for _, attributes in page.attributes:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "http" not in re.sub(r"Content-Security-Policy|http-equiv", "", text)
    assert [t for t in page.tags if t in ("h1", "h2")][:2] == ["h1", "h2"]
    ids = [a["id"] for _, a in page.attributes if a.get("id")]
    assert len(ids) == len(set(ids))
    assert {a["href"] for t, a in page.attributes if t == "a"} <= {f"#{i}" for i in ids}
    for tag, attributes in page.attributes:
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        if tag == "th":
            assert attributes["scope"] == "col"


@pytest.mark.parametrize(
    ("name", "want_text"),
    [
        pytest.param("<script>alert(1)</script>", "<script>alert(1)</script>", id="script"),
        pytest.param("\"'><img src=x onerror=alert(1)>", "<img src=x onerror", id="quotes"),
        pytest.param("</title></style></svg><b>", "</title></style></svg><b>", id="end tags"),
        pytest.param("&lt;&amp;&#60;", "&lt;&amp;&#60;", id="entities"),
        pytest.param("a\u202eb\u200fc", r"a\u202eb\u200fc", id="right-to-left marks"),
        pytest.param("x\x00\x1b[31m\n", r"x\x00\x1b[31m\n", id="control characters"),
        pytest.param("x" * 10_000, f"{'x' * 100}", id="very long"),
        pytest.param("ענן", "ענן", id="right-to-left script"),
    ],
)
def test_names_stay_names(name: str, want_text: str) -> None:
    snapshot = make_fleet(name)
    plan = make_full_plan(snapshot, name)
    text = gangplan.report(plan, snapshot)
    page, plain = Reader(text), Reader(gangplan.report(make_full_plan(make_fleet()), make_fleet()))
    assert page.text.count(want_text) > 5
    # The same elements as for plain names, bar letters of the pictures that find no room.
    assert set(page.tags) == set(plain.tags)
    assert [t for t in page.tags if t in ("td", "h2", "li")] == [
        t for t in plain.tags if t in ("td", "h2", "li")
    ]
    assert not {"\u202e", "\u200f", "\x00", "\x1b"} & set(text)
    assert len(text.encode()) < 400_000
    Reader(gangplan.report(plan))
    Reader(gangplan.report(gangplan.inspect(snapshot)))


def test_the_same_answer_gives_the_same_page() -> None:
    snapshot = make_fleet()
    plan = make_full_plan(snapshot)
    page = gangplan.report(plan, snapshot)
    assert gangplan.report(plan.to_dict(), snapshot) == page


@pytest.mark.parametrize("num_nodes", [2000, 10_000])
def test_a_large_fleet_gives_a_small_page(num_nodes: int) -> None:
    nodes = [make_node(f"n{i:05}", rack=f"rack-{i // 8:04}") for i in range(num_nodes)]
    snapshot = make_snapshot(
        nodes,
        make_pods("run", num_nodes, spec=make_spec(gpus=3), on=[n.name for n in nodes]),
        make_pods("new", num_nodes, group="ml/new", spec=make_spec(gpus=5)),
        groups=[make_group("ml/new", num_nodes)],
    )
    placed = {f"ml/new-{i}": f"n{i:05}" for i in range(num_nodes)}
    page = gangplan.report(make_plan(snapshot, placed), snapshot)
    assert 100_000 < len(page) < 3_000_000


def test_inspection() -> None:
    snapshot = gangplan.read(CASES / "place-lws-subgroups/snapshot.yaml")
    inspection = gangplan.inspect(snapshot)
    page = Reader(gangplan.report(inspection))
    assert "What still fits" in page.text
    assert "Groups that wait" in page.text
    assert "this is a plan" not in page.text
    assert gangplan.report(inspection.to_dict()) == gangplan.report(inspection)


def test_comparison() -> None:
    snapshot = make_fleet()
    plan = make_full_plan(snapshot)
    other = replace(plan, groups=(), criteria={"victimPods": 5})
    document = {
        **plan.to_dict(),
        "comparison": {"replay": other.to_dict(), "saved": {"victimPods": 3}},
    }
    page = Reader(gangplan.report(document, snapshot))
    assert "Compared with kube-scheduler" in page.text
    assert "victimPods 2 5 3" in page.text
    assert "Than kube-scheduler 3 fewer pods evicted" in page.text
    assert "Placed only by this plan: ml/new" in page.text


def test_replay() -> None:
    document = make_full_plan(make_fleet()).to_dict()
    document["request"]["policy"] = "replay"
    assert "What kube-scheduler's own steps would do." in Reader(gangplan.report(document)).text


def test_every_cause_has_its_line() -> None:
    assert list(CAUSES) == list(get_args(CauseName))


def test_goals() -> None:
    plan = make_full_plan(make_fleet())
    goals = [{"goal": "free rack:2", "wanted": 2, "reached": 1, "reason": "r1 is pinned"}]
    page = Reader(gangplan.report({**plan.to_dict(), "goals": goals}))
    assert "free rack:2 1 of 2 r1 is pinned" in page.text


def test_scenarios() -> None:
    plan = make_full_plan(make_fleet())
    document = {
        "kind": "WhatIf",
        "snapshot": dict(plan.snapshot),
        "base": {"groupsPlaced": 1},
        "scenarios": [
            {
                "name": "<two>",
                "row": {"groupsPlaced": 3, "groupsNotPlaced": 1},
                "change": {"groupsPlaced": 2},
                "plan": None,
            },
            {"name": "drained", "plan": plan.to_dict()},
            {"name": "odd", "error": "no such node", "plan": None},
        ],
    }
    page = Reader(gangplan.report(document))
    for want_text in (
        "as it is 1",
        "<two> 3 (+2) 1 not placed",
        "drained 4 2 NOT VALID",
        "odd not answered: no such node",
    ):
        assert want_text in page.text


@pytest.mark.parametrize(
    ("change", "want_message"),
    [
        pytest.param({"kind": "Verification"}, "kind: must be Plan, Inspection", id="kind"),
        pytest.param({"groups": 3}, "plan: groups: must be a list", id="field of a plan"),
        pytest.param({"kind": "Inspection"}, "inspection: ", id="not an inspection"),
        pytest.param({"kind": "WhatIf"}, "scenarios: must be a list", id="no scenarios"),
        pytest.param({"kind": "WhatIf", "scenarios": [{}]}, "scenarios.0..name: is", id="scenario"),
        pytest.param({"goals": [{"goal": "free"}]}, "goals.0..wanted: is missing", id="goal"),
        pytest.param(
            {"comparison": {"replay": {"kind": "Plan"}}}, "is missing", id="half a comparison"
        ),
    ],
)
def test_refusals(change: dict[str, Any], want_message: str) -> None:
    document = {**make_full_plan(make_fleet()).to_dict(), **change}
    with pytest.raises(RequestError, match=want_message):
        build_page(read_source(document))
