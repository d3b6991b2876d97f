"""Pictures as files: whole documents, standing alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec
from plan_builders import make_plan

from gangplan.reporting.pictures import draw_picture, turn_into_png
from gangplan.reporting.source import Source, read_source
from topology.errors import RequestError
from topology.plan import Eviction, Move

if TYPE_CHECKING:
    from gangplan.report_command import PictureName

SVG = "{http://www.w3.org/2000/svg}"


def make_source(*, with_snapshot: bool = True, num_moves: int = 1) -> Source:
    """One gang placed, one pod evicted, pods moved two by two."""
    snapshot = make_snapshot(
        [make_node(f"n{i}", rack=f"r{i // 2}") for i in range(6)],
        make_pods("old", 1, on="n0", spec=make_spec(gpus=8), priority=3),
        make_pods("mover", num_moves, on="n1", spec=make_spec(gpus=0, cpu=1)),
        make_pods("new", 1, group="ml/new", spec=make_spec(gpus=8)),
        groups=[make_group("ml/new", 1, priority=9)],
    )
    moves = [
        Move(
            i + 1,
            i // 2 + 1,
            f"ml/mover-{i}",
            "n1",
            f"n{2 + i % 4}",
            "restart" if i % 2 else "live",
        )
        for i in range(num_moves)
    ]
    plan = make_plan(snapshot, {"ml/new-0": "n0"}, victims={"ml/old-0": "ml/new"}, moves=moves)
    return read_source(plan.to_dict(), snapshot if with_snapshot else None)


def read_words(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert "var(" not in svg
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("picture", "want_words"),
    [
        pytest.param(
            "heatmap", ["Before", "After this plan", "r0", "n5", "A", "ml/new placed"], id="heatmap"
        ),
        pytest.param("tree", ["all nodes", "rack r0", "8 of 16 free"], id="tree"),
        pytest.param(
            "waves",
            ["would evict", "wave 1", "then placed", "1. n1 → n2", "ml/mover-0"],
            id="waves",
        ),
        pytest.param("victims", ["ml/old-0", "3", "8 GPUs in 1 pod"], id="victims"),
    ],
)
def test_picture(picture: PictureName, want_words: list[str]) -> None:
    svg = draw_picture(make_source(), picture)
    assert set(want_words) - set(read_words(svg)) == set()
    assert draw_picture(make_source(), picture) == svg


@pytest.mark.parametrize(
    ("num_moves", "want_words"),
    [
        pytest.param(30, ["wave 15", "ml/mover-29"], id="a row for each pod"),
        pytest.param(200, ["1–3", "and 140 more, in the table"], id="too many to draw each"),
    ],
)
def test_many_moves(num_moves: int, want_words: list[str]) -> None:
    svg = draw_picture(make_source(num_moves=num_moves), "waves")
    assert set(want_words) - set(read_words(svg)) == set()
    assert len(svg) < 120_000


@pytest.mark.parametrize(
    ("picture", "want_message"),
    [
        pytest.param("tree", "a plan names no topology; give --snapshot", id="tree"),
        pytest.param("waves", "moves nothing", id="waves"),
        pytest.param("victims", "plans no eviction", id="victims"),
        pytest.param("heatmap", "no node to draw; give --snapshot", id="heatmap"),
    ],
)
def test_nothing_to_draw(picture: PictureName, want_message: str) -> None:
    plan = make_source().plan
    assert plan is not None
    empty = replace(plan, groups=(), evictions=(), moves=())
    with pytest.raises(RequestError, match=want_message):
        draw_picture(read_source(empty.to_dict()), picture)


def test_many_victims_are_cut() -> None:
    source = make_source()
    assert source.plan is not None
    gone = tuple(Eviction(f"ml/v-{i:03}", "n0") for i in range(100))
    plan = replace(source.plan, evictions=gone, moves=())
    svg = draw_picture(read_source(plan.to_dict()), "victims")
    assert "and 60 more, in the table" in read_words(svg)


def test_png() -> None:
    pytest.importorskip("resvg_py", reason="PNG needs the extra `plot`")
    png = turn_into_png(draw_picture(make_source(), "heatmap"))
    assert png.startswith(b"\x89PNG")
    assert len(png) > 5_000


def test_png_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(RequestError, match=r"run `pip install 'gangplan\[plot\]'`"):
        turn_into_png("<svg/>")
