"""What a plan says in words and tables: groups, causes, evictions, moves, proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangplan.reporting.markup import Child, cut, make
from gangplan.reporting.numbers import count
from gangplan.reporting.parts import (
    MOST_CHARACTERS,
    MOST_PODS,
    badge,
    fold,
    list_names,
    name,
    section,
    show_table,
)
from gangplan.reporting.victims import find_victims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangplan.reporting.changes import Changes
    from gangplan.reporting.fleet import Fleet
    from gangplan.reporting.markup import Element
    from gangplan.reporting.parts import Cell
    from topology.move_request import GoalOutcome
    from topology.plan import GroupPlan, Plan

__all__ = [
    "CAUSES",
    "show_comparison",
    "show_criteria",
    "show_evictions",
    "show_goals",
    "show_moves",
    "show_not_placed",
    "show_placed",
    "show_violations",
]

CAUSES: Final = {
    "quorum-missing": "fewer pods exist than its minimum asks for",
    "refused": "its own scheduler would not try it as it stands",
    "impossible": "it would not fit an empty fleet",
    "domain-pinned": "its running pods hold it to a domain that has no room",
    "device-held": "devices held through claims are in the way",
    "policy-never": "it may not evict, and would have to",
    "constraint": "taints, cordons or readiness keep it away",
    "fragmented": "enough is free in sum, but not where it may go together",
    "busy": "too little is free",
}
"""One line for each cause; docs/explain.md has the whole meaning."""


def _in_order(plan: Plan) -> list[GroupPlan]:
    """Return the groups, highest priority first."""
    return sorted(plan.groups, key=lambda g: (-g.priority, g.group))


def show_violations(plan: Plan) -> Element | None:
    """Return the rules that the plan breaks, None where it breaks none."""
    if plan.verification is None or plan.verification.is_valid:
        return None
    rows: list[list[Cell]] = [
        [v.rule, name(v.object), v.wanted, v.found] for v in plan.verification.violations
    ]
    return section(
        "violations",
        "Broken rules",
        make("p", "This plan must not be carried out.", class_="bad"),
        show_table("Every rule that the plan breaks", ["Rule", "Object", "Wanted", "Found"], rows),
    )


def show_placed(plan: Plan, changes: Changes) -> Element | None:
    """Return the groups that get nodes, with every pod folded below."""
    groups = [g for g in _in_order(plan) if g.pods]
    if not groups:
        return None
    rows: list[list[Cell]] = []
    for group in groups:
        domains = list(dict.fromkeys(f"{d.key}={d.value}" for d in group.domains))
        nodes: dict[str, int] = {}
        for pod in group.pods:
            nodes[pod.node] = nodes.get(pod.node, 0) + 1
        texts = [f"{node} ({n})" if n > 1 else node for node, n in sorted(nodes.items())]
        rows.append(
            [
                badge(changes.badges, group.group),
                name(group.group),
                group.priority,
                f"{len(group.pods):,} of {len(group.pods) + len(group.pending_pods):,}",
                group.min_count,
                list_names(domains, 2),
                list_names(texts),
            ]
        )
    pods: list[list[Cell]] = [
        [name(p.pod), name(p.node), name(g.group), p.subgroup or "", p.template or ""]
        for g in groups
        for p in g.pods
    ]
    heads = ["", "Group", "Priority", "Pods", "Minimum", "Domain", "Nodes"]
    title = "Would fit now" if plan.request.command == "explain" else "Planned placements"
    return section(
        "placed",
        title,
        show_table("Groups that get nodes, highest priority first", heads, rows),
        fold(
            f"Every pod ({len(pods):,})",
            show_table(
                "Pods and the nodes they would get",
                ["Pod", "Node", "Group", "Subgroup", "Template"],
                pods,
                most=MOST_PODS,
            ),
        ),
    )


def show_not_placed(plan: Plan) -> Element | None:
    """Return the groups that stay without nodes, by cause, and what each lacks."""
    groups = [g for g in _in_order(plan) if g.outcome == "notPlaced"]
    if not groups:
        return None
    causes: dict[str, int] = {}
    for group in groups:
        if group.cause is not None:
            causes[group.cause.name] = causes.get(group.cause.name, 0) + 1
    meanings = [
        make("li", make("span", cause, class_="word"), f" {count(n, 'group')}: {CAUSES[cause]}")
        for cause, n in sorted(causes.items(), key=lambda item: list(CAUSES).index(item[0]))
    ]
    rows: list[list[Cell]] = []
    for group in groups:
        message: list[Child] = []
        if group.cause is not None:
            message.append(cut(group.cause.message, MOST_CHARACTERS))
            event = group.cause.details.get("event")
            if event:
                message.append(make("div", cut(str(event), MOST_CHARACTERS), class_="note"))
        word = make("span", group.cause.name, class_="word") if group.cause else None
        rows.append([name(group.group), group.priority, len(group.pending_pods), word, message])
    return section(
        "waiting",
        "Not placed, and why",
        make("ul", meanings, class_="legend"),
        show_table(
            "Groups that stay without nodes, highest priority first",
            ["Group", "Priority", "Pods", "Cause", "What it lacks"],
            rows,
            wide=[4],
        ),
    )


def show_evictions(plan: Plan, fleet: Fleet, changes: Changes, picture: Element) -> Element | None:
    """Return who would go: the picture, the units, and every pod folded below."""
    if not plan.evictions:
        return None
    rows: list[list[Cell]] = [
        [
            badge(changes.badges, unit.name),
            name(unit.name),
            unit.priority,
            len(unit.pods),
            None if fleet.is_partial else unit.amount,
            list_names(unit.nodes),
            ", ".join(unit.reasons),
            list_names(unit.preemptors),
        ]
        for unit in find_victims(fleet, plan)
    ]
    pods: list[list[Cell]] = [
        [name(e.pod), name(e.node), e.reason, name(e.preemptor) if e.preemptor else None]
        for e in plan.evictions
    ]
    heads = ["", "Group or pod", "Priority", "Pods", f"{fleet.unit}s", "Nodes", "Reason", "For"]
    return section(
        "evictions",
        "Would be evicted",
        picture,
        show_table("Units that would go, highest priority first", heads, rows),
        fold(
            f"Every pod ({len(pods):,})",
            show_table(
                "Pods that would be evicted", ["Pod", "Node", "Reason", "For"], pods, most=MOST_PODS
            ),
        ),
    )


def show_goals(goals: Sequence[GoalOutcome]) -> Element | None:
    """Return what a re-packing was for and what came of it."""
    if not goals:
        return None
    rows: list[list[Cell]] = [
        [name(g.goal), f"{g.reached:,} of {g.wanted:,}", g.reason or ""] for g in goals
    ]
    return section(
        "goals",
        "Goals",
        show_table("Domains and nodes that were to be empty", ["Goal", "Reached", "Why not"], rows),
    )


def show_moves(plan: Plan, changes: Changes, picture: Element) -> Element | None:
    """Return what would move, in order: the wave chart and a row for each move."""
    if not plan.moves:
        return None
    rows: list[list[Cell]] = [
        [
            m.step,
            m.wave,
            badge(changes.badges, m.group or m.pod),
            name(m.pod),
            name(m.group) if m.group else None,
            name(m.source),
            name(m.target),
            m.mode,
        ]
        for m in sorted(plan.moves, key=lambda m: (m.step, m.wave, m.pod))
    ]
    return section(
        "moves",
        "Planned moves",
        make(
            "p",
            "Moves of one wave may run side by side; a wave starts when the one before is done. "
            "live: one pod to a node with room at that moment. restart: a whole unit stops, then "
            "starts elsewhere.",
        ),
        picture,
        show_table(
            "Every move, in order",
            ["Step", "Wave", "", "Pod", "Group", "From", "To", "Mode"],
            rows,
            most=MOST_PODS,
        ),
    )


def show_criteria(plan: Plan) -> Element:
    """Return what was asked and how the plan does by each criterion."""
    goals = [goal.partition(":") for goal in plan.request.objective]
    asked = {criterion: direction for direction, _, criterion in goals}
    order = [c for c in asked if c in plan.criteria]
    order += [c for c in sorted(plan.criteria) if c not in asked]
    bound = plan.bound
    rows: list[list[Cell]] = [
        [
            criterion,
            f"{list(asked).index(criterion) + 1}. {asked[criterion]}" if criterion in asked else "",
            plan.criteria[criterion],
            bound.value if criterion == bound.criterion else None,
            bound.proof if criterion == bound.criterion else "",
        ]
        for criterion in order
    ]
    request = plan.request
    settings = [
        f"Objective, most important first: {', '.join(request.objective)}.",
        f"Effort {request.effort}, seed {request.seed}, rules of Kubernetes {request.release}.",
    ]
    if request.preempt:
        settings.append(f"Disruption budgets: {request.pdb}.")
    return section(
        "criteria",
        "How good it is",
        make("p", " ".join(settings)),
        show_table(
            "Value of each criterion", ["Criterion", "Asked for", "Value", "Bound", "Proof"], rows
        ),
    )


def show_comparison(plan: Plan, replay: Plan, saved: Mapping[str, int]) -> Element:
    """Return this plan beside what kube-scheduler's own steps would do."""
    names = [
        c for c in dict.fromkeys([*saved, *replay.criteria]) if c in plan.criteria or c in saved
    ]
    rows: list[list[Cell]] = [
        [c, plan.criteria.get(c), replay.criteria.get(c), saved.get(c)] for c in names
    ]
    here = {g.group for g in plan.groups if g.outcome == "placed"}
    there = {g.group for g in replay.groups if g.outcome == "placed"}
    gone_here, gone_there = ({e.pod for e in p.evictions} for p in (plan, replay))
    lines = [
        ("Placed only by this plan: ", sorted(here - there)),
        ("Placed only by the replay: ", sorted(there - here)),
        ("Would be evicted only by this plan: ", sorted(gone_here - gone_there)),
        ("Would be evicted only in the replay: ", sorted(gone_there - gone_here)),
    ]
    return section(
        "comparison",
        "Compared with kube-scheduler",
        make("p", "The same question, answered by a replay of kube-scheduler's own steps."),
        show_table("Criteria side by side", ["Criterion", "This plan", "Replay", "Saved"], rows),
        [make("div", text, list_names(found)) for text, found in lines if found],
    )
