"""From the words of a command line to a `Request`; every refusal is one line.

Source: selectors as `kubectl -l` reads them.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from gangplan.inspection import find_states
from topology.errors import RequestError
from topology.model import NO_GROUP, LabelSelector, Requirement
from topology.owners import find_owners
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topology.model import Snapshot
    from topology.plan import ResizeRequest

__all__ = [
    "ask_evictions",
    "ask_resize",
    "check_policy",
    "check_workers",
    "choose_groups",
    "find_keys",
    "parse_selector",
    "select_pods",
    "split_objective",
    "suggest",
]

_TERM = re.compile(
    r"""\s*(?:
        (?P<set_key>[^\s,()!=]+)\s+(?P<set_op>in|notin)\s*\((?P<set>[^()]*)\)
        | (?P<key>[^\s,()!=]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s,()!=]*)
        | (?P<absent>!)?\s*(?P<bare>[^\s,()!=]+)
    )\s*(?:,|$)""",
    re.VERBOSE,
)


def split_objective(text: str) -> tuple[str, ...]:
    """Return the criteria of `--objective`, most important first.

    Raises:
      RequestError: When one is unknown or lacks its direction.

    Example:
      >>> split_objective("max:priority, min:fragmentation")
      ('max:priority', 'min:fragmentation')
    """
    from optimizer.objective import parse_objective

    criteria = tuple(part.strip() for part in text.split(","))
    parse_objective(criteria)
    return criteria


def ask_evictions(
    command: str,
    *,
    groups: Sequence[str],
    preempt: bool,
    pdb: str | None,
    dra_reclaim: str | None = None,
    cost: str | None = None,
) -> dict[str, Any]:
    """Return the fields of a request that say what may be evicted, and the objective for it.

    Raises:
      RequestError: `preempt` names no group, or `--pdb`, `--cost` or `--dra-reclaim` is given where
        nothing may be evicted.
    """
    if command == "preempt":
        if not groups:
            raise RequestError(
                "preempt: for which groups? name them by --group REF, or use `place --preempt` for "
                "everything pending"
            )
        preempt = True
    elif not preempt and pdb is not None:
        raise RequestError("--pdb: is about evictions; add --preempt, or leave it out")
    elif not preempt and dra_reclaim is not None:
        raise RequestError("--dra-reclaim: is about evictions; add --preempt, or leave it out")
    elif not preempt and cost is not None:
        raise RequestError("--cost: is about evictions; add --preempt, or leave it out")
    if not preempt:
        return {}
    from optimizer.objective import COST_OBJECTIVES

    return {
        "preempt": True,
        "pdb": pdb or "soft",
        "dra_reclaim": dra_reclaim or "none",
        "objective": COST_OBJECTIVES[cost or "scheduler"],
    }


def ask_resize(
    command: str,
    pod: str | None,
    requests: Sequence[str],
    *,
    groups: Sequence[str],
    namespace: str | None = None,
    selector: str | None = None,
    policy: str = "optimize",
) -> ResizeRequest | None:
    """Return what `--resize` and `--requests` ask for, None without them.

    A pod without a slash is looked up in `namespace`.

    Raises:
      RequestError: They do not go together with the rest, or an amount cannot be read.
    """
    from data.quantities import parse_quantity
    from topology.plan import ResizeRequest

    if pod is None:
        if requests:
            raise RequestError("--requests: of which pod? name it by --resize NAMESPACE/POD")
        return None
    if command != "preempt":
        raise RequestError(f"--resize: is a question to `gangplan preempt`, not to {command}")
    if groups or selector is not None:
        raise RequestError("--resize: is about one running pod; leave out --group and -l")
    if policy != "optimize":
        raise RequestError("--policy: a resize is planned by the search alone; leave it out")
    amounts: dict[str, int] = {}
    for item in [part.strip() for text in requests for part in text.split(",")]:
        resource, equals, text = item.partition("=")
        if not equals or not resource or not text:
            raise RequestError(f"--requests: {item!r}: write RESOURCE=QUANTITY, such as cpu=8")
        if resource in amounts:
            raise RequestError(f"--requests: {resource} is named twice; name it once")
        try:
            amounts[resource] = parse_quantity(text, resource)
        except ValueError as problem:
            raise RequestError(f"--requests: {resource}: {problem}") from None
    full = f"{namespace}/{pod}" if namespace and "/" not in pod else pod
    return ResizeRequest(full, tuple(sorted(amounts.items())))


def check_policy(command: str, *, policy: str, pdb: str | None) -> None:
    """Refuse a policy that has no meaning for a command or its other options.

    Raises:
      RequestError: `explain` is to compare, or kube-scheduler to hold disruption budgets hard.
    """
    if command == "explain" and policy == "compare":
        raise RequestError(
            "--policy compare: explain answers why, not how well; use place --policy compare, or "
            "explain --policy replay"
        )
    if policy == "replay" and pdb == "hard":
        raise RequestError(
            "--pdb hard: kube-scheduler breaks disruption budgets where nothing else helps; leave "
            "it out with --policy replay"
        )


def check_workers(workers: str | None, *, policy: str, evicts: bool) -> None:
    """Refuse workers where nothing can be shared out, and a number that is none.

    Raises:
      RequestError: Evictions are asked for, or kube-scheduler's own steps, one after another.
    """
    from ray_jobs.fan_out import parse_workers

    if parse_workers(workers) is None:
        return
    if evicts:
        raise RequestError(
            "--workers: evictions are planned in one process; leave out --workers, or ask for "
            "`place` without --preempt"
        )
    if policy == "replay":
        raise RequestError(
            "--workers: kube-scheduler goes step by step; leave it out with --policy replay"
        )


def parse_selector(text: str, *, option: str = "--selector") -> LabelSelector:
    """Return a label selector as kubectl reads it: `a=b,c!=d,e in (f,g),h,!i`.

    Raises:
      RequestError: When it cannot be read.

    Example:
      >>> parse_selector("app=train,tier notin (test, dev)").requirements[1].values
      ('test', 'dev')
    """
    requirements: list[Requirement] = []
    at = 0
    while at < len(text) or not requirements:
        found = _TERM.match(text, at)
        if found is None:
            raise RequestError(
                f"{option}: cannot read {text[at:] or text!r}; "
                "write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY or !KEY, parted by commas"
            )
        requirements.append(_read_requirement(found))
        at = found.end()
    return LabelSelector(tuple(requirements))


def _read_requirement(found: re.Match[str]) -> Requirement:
    if found["set_key"]:
        values = tuple(value.strip() for value in found["set"].split(","))
        return Requirement(found["set_key"], "In" if found["set_op"] == "in" else "NotIn", values)
    if found["key"]:
        operator = "NotIn" if found["op"] == "!=" else "In"
        return Requirement(found["key"], operator, (found["value"],))
    return Requirement(found["bare"], "DoesNotExist" if found["absent"] else "Exists")


def find_keys(selector: LabelSelector | None) -> frozenset[str]:
    """Return the label keys that a selector reads; pods must keep them."""
    return frozenset() if selector is None else frozenset(r.key for r in selector.requirements)


def select_pods(
    snapshot: Snapshot, namespace: str | None, selector: LabelSelector | None
) -> NDArray[np.bool_] | None:
    """Return the pods that `-n` and `-l` leave, bool[P], or None when neither is given.

    Raises:
      RequestError: When the namespace holds no pod, or no pod has a label of the selector.
    """
    if namespace is None and selector is None:
        return None
    pods = snapshot.pods
    chosen = np.ones(len(pods), np.bool_)
    if namespace is not None:
        prefix = f"{namespace}/"
        chosen &= np.fromiter((ref.startswith(prefix) for ref in pods.refs), np.bool_, len(pods))
        if not chosen.any():
            names = sorted({ref.partition("/")[0] for ref in pods.refs})
            raise RequestError(
                f"-n {namespace}: no pod is in that namespace{suggest(namespace, names)}"
            )
    if selector is not None:
        kept = {key for labels in pods.label_sets for key in labels}
        for key in sorted(find_keys(selector) - kept):
            raise RequestError(
                f"-l: no pod that was read has a label {key!r}; check its name (a stored snapshot "
                "keeps the labels its own selectors name and those of --keep-label)"
            )
        matches = [matches_selector(selector, labels) for labels in pods.label_sets]
        chosen &= np.array(matches or [False], np.bool_)[pods.labels]
    return chosen


def choose_groups(
    snapshot: Snapshot,
    refs: Sequence[str],
    *,
    namespace: str | None = None,
    selector: LabelSelector | None = None,
) -> tuple[str, ...] | None:
    """Return the references to plan for, sorted; None for everything pending.

    A pending pod in no group is planned under its own reference. A reference without a slash is
    looked up in `namespace`.

    Raises:
      RequestError: When a reference names no group, or `-n` and `-l` leave nothing of it.
    """
    chosen = select_pods(snapshot, namespace, selector)
    known = {group.ref for group in snapshot.groups if group.kind != "subgroup"}
    asked: list[str] = []
    for ref in refs:
        full = f"{namespace}/{ref}" if namespace and "/" not in ref else ref
        if full not in known:
            _check_pod(snapshot, full, known)
        asked.append(full)
    if chosen is None:
        return tuple(sorted(set(asked))) or None
    left = _pending_refs(snapshot, chosen)
    for ref in asked:
        if ref not in left:
            raise RequestError(
                f"--group {ref}: -n and -l leave no pending pod of it; drop one of the options"
            )
    return tuple(sorted(set(asked) or left))


def _pending_refs(snapshot: Snapshot, chosen: NDArray[np.bool_]) -> set[str]:
    """Return groups (and those above them) and single pods with a pending pod among `chosen`."""
    groups, pods = snapshot.groups, snapshot.pods
    waits = pods.is_pending & chosen
    owners = find_owners(snapshot)
    refs = {pods.refs[p] for p in np.flatnonzero(waits & (owners == NO_GROUP)).tolist()}
    return refs | {groups[g].ref for g in np.unique(owners[waits & (owners != NO_GROUP)]).tolist()}


def _check_pod(snapshot: Snapshot, ref: str, known: set[str]) -> None:
    """Accept a pending pod in no group; refuse anything else by what may have been meant."""
    pods = snapshot.pods
    row = pods.refs.index(ref) if ref in pods.refs else None
    if row is None:
        raise RequestError(
            f"--group {ref}: no such group was read{suggest(ref, sorted(known))}; "
            "`gangplan inspect SNAPSHOT -o name` lists them"
        )
    owner = int(find_owners(snapshot)[row])
    if owner != NO_GROUP:
        raise RequestError(
            f"--group {ref}: is a pod of group {snapshot.groups[owner].ref}; ask for that"
        )
    state = find_states(snapshot)[row]
    if state != "pending":
        raise RequestError(
            f"--group {ref}: is a single pod that waits for no node ({state}); name one that does"
        )


def suggest(name: str, known: Sequence[str]) -> str:
    """Return ` (did you mean …?)` with the nearest names, "" when none is near."""
    near = difflib.get_close_matches(name, known, n=3)
    if not near:  # the right name in another namespace
        near = [other for other in known if other.rpartition("/")[2] == name.rpartition("/")[2]]
    return f" (did you mean {' or '.join(near[:3])}?)" if near else ""
