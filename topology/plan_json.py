"""A Plan document of the contract -> Plan, field by field, or one line that says what is wrong.

The way back from `Plan.to_dict`. Unknown keys are let pass, since the contract may grow; known ones
must be there and have their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from topology.errors import RequestError
from topology.model import ObjectError
from topology.move_request import FreeGoal, GoalOutcome, MoveRequest
from topology.plan import (
    API_VERSION,
    Bound,
    Cause,
    CauseName,
    ChosenDomain,
    Comparison,
    Eviction,
    GroupPlan,
    Move,
    PlacedDevice,
    PlacedPod,
    Plan,
    Request,
    ResizePlan,
    ResizeRequest,
    Verification,
    Violation,
)
from topology.quantities import parse_canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["plan_from_dict"]

_COMMANDS = ("explain", "place", "preempt", "repack")
_POLICIES = ("optimize", "replay", "compare")
_MISSING = object()


class _Fields:
    """The fields of one JSON object, read with a type; errors name the path."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise _error(path, "an object", value)
        self._value = value
        self._path = path

    def at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def has(self, key: str) -> bool:
        return key in self._value

    def raw(self, key: str) -> Any:
        value = self._value.get(key, _MISSING)
        if value is _MISSING:
            raise RequestError(f"plan: {self.at(key)}: is missing; give a complete Plan document")
        return value

    def text(self, key: str) -> str:
        value = self.raw(key)
        if not isinstance(value, str):
            raise _error(self.at(key), "a string", value)
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.raw(key) is None else self.text(key)

    def whole(self, key: str) -> int:
        value = self.raw(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _error(self.at(key), "a whole number", value)
        return value

    def flag(self, key: str) -> bool:
        value = self.raw(key)
        if not isinstance(value, bool):
            raise _error(self.at(key), "true or false", value)
        return value

    def one_of(self, key: str, choices: tuple[str, ...]) -> Any:
        value = self.text(key)
        if value not in choices:
            raise _error(self.at(key), f"one of {', '.join(choices)}", value)
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.raw(key)
        if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
            raise _error(self.at(key), "an object", value)
        return dict(value)

    def child(self, key: str) -> _Fields:
        return _Fields(self.raw(key), self.at(key))

    def texts(self, key: str) -> tuple[str, ...]:
        items = self._items(key)
        for i, item in enumerate(items):
            if not isinstance(item, str):
                raise _error(f"{self.at(key)}[{i}]", "a string", item)
        return tuple(items)

    def children(self, key: str, read_fn: Callable[[_Fields], T]) -> tuple[T, ...]:
        items = self._items(key)
        return tuple(read_fn(_Fields(x, f"{self.at(key)}[{i}]")) for i, x in enumerate(items))

    def _items(self, key: str) -> list[Any]:
        value = self.raw(key)
        if not isinstance(value, list):
            raise _error(self.at(key), "a list", value)
        return value


def _error(path: str, wanted: str, found: object) -> RequestError:
    shown = "null" if found is None else repr(found)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return RequestError(f"plan: {path or 'document'}: must be {wanted}, not {shown}")


def plan_from_dict(document: Mapping[str, Any]) -> Plan:
    """Read a Plan document as `Plan.to_dict` writes it.

    The release is that of the snapshot. The document does not say whether inferred gangs were held
    to their floors unless its request has `assumeGangs`; they are otherwise. Without `pdb` in its
    request, disruption budgets are soft; without `draReclaim`, evictions release no claim.

    Args:
      document: Parsed JSON or YAML.

    Returns:
      The plan; `plan_from_dict(plan.to_dict()).to_dict()` equals `plan.to_dict()`.

    Raises:
      RequestError: A field is missing, has a wrong type or an unknown value; one line, with its
        path in the document.
    """
    return _read_plan(_Fields(document, ""))


def _read_plan(top: _Fields) -> Plan:
    for key, wanted in (("apiVersion", API_VERSION), ("kind", "Plan")):
        if top.text(key) != wanted:
            raise _error(top.at(key), wanted, top.text(key))
    return Plan(
        request=_read_request(top),
        snapshot=top.mapping("snapshot"),
        groups=top.children("groups", _read_group),
        evictions=top.children("evictions", _read_eviction),
        moves=top.children("moves", _read_move),
        goals=top.children("goals", _read_goal) if top.has("goals") else (),
        criteria=_read_criteria(top),
        bound=_read_bound(top.child("bound")),
        conditional=top.children("conditional", lambda f: (f.text("group"), f.text("reason"))),
        warnings=top.texts("warnings"),
        errors=top.children("errors", _read_object_error),
        verification=_read_verification(top),
        resize=_read_resize(top.child("resize")) if top.has("resize") else None,
        comparison=_read_comparison(top.child("comparison")) if top.has("comparison") else None,
    )


def _read_comparison(fields: _Fields) -> Comparison:
    replay = _read_plan(fields.child("replay"))
    saved = fields.child("saved")
    return Comparison(replay, {name: saved.whole(name) for name in fields.mapping("saved")})


def _read_request(top: _Fields) -> Request:
    fields = top.child("request")
    return Request(
        command=top.one_of("command", _COMMANDS),
        groups=None if fields.raw("groups") is None else fields.texts("groups"),
        objective=fields.texts("objective"),
        seed=fields.whole("seed"),
        effort=fields.one_of("effort", ("quick", "normal", "thorough")),
        preempt=fields.flag("preempt"),
        pdb=fields.one_of("pdb", ("soft", "hard")) if "pdb" in top.raw("request") else "soft",
        dra_reclaim=(
            fields.one_of("draReclaim", ("none", "node-local", "all"))
            if "draReclaim" in top.raw("request")
            else "none"
        ),
        release=top.child("snapshot").text("release"),
        assume_gangs=fields.flag("assumeGangs") if "assumeGangs" in top.raw("request") else True,
        resize=_read_resize_request(fields) if fields.has("resize") else None,
        policy=fields.one_of("policy", _POLICIES) if fields.has("policy") else "optimize",
        move=None if fields.raw("move") is None else _read_move_request(fields.child("move")),
    )


def _read_move_request(fields: _Fields) -> MoveRequest:
    def limit(key: str) -> int | None:
        return None if fields.raw(key) is None else fields.whole(key)

    def names(key: str) -> tuple[str, ...] | None:
        return None if fields.raw(key) is None else fields.texts(key)

    return MoveRequest(
        mode=fields.one_of("mode", ("live", "restart")),
        free=fields.children(
            "free", lambda f: FreeGoal(f.text("key"), f.optional_text("value"), f.whole("count"))
        ),
        drain=fields.texts("drain"),
        drain_unit=fields.one_of("drainUnit", ("group", "pod")),
        movable=names("movable"),
        movable_groups=names("movableGroups"),
        keep=fields.texts("keep"),
        max_moves=limit("maxMoves"),
        max_disturbed=limit("maxDisturbed"),
        max_parallel=limit("maxParallel"),
        priority_ceiling=limit("priorityCeiling"),
    )


def _read_goal(fields: _Fields) -> GoalOutcome:
    return GoalOutcome(
        goal=fields.text("goal"),
        wanted=fields.whole("wanted"),
        reached=fields.whole("reached"),
        reason=fields.optional_text("reason"),
    )


def _read_resize_request(fields: _Fields) -> ResizeRequest | None:
    if fields.raw("resize") is None:
        return None
    resize = fields.child("resize")
    return ResizeRequest(resize.text("pod"), _read_amounts(resize, "requests"))


def _read_resize(fields: _Fields) -> ResizePlan:
    return ResizePlan(
        pod=fields.text("pod"),
        node=fields.text("node"),
        outcome=fields.one_of("outcome", ("resized", "notResized")),
        before=_read_amounts(fields, "from"),
        after=_read_amounts(fields, "to"),
        cause=None if fields.raw("cause") is None else _read_cause(fields.child("cause")),
    )


def _read_amounts(fields: _Fields, key: str) -> tuple[tuple[str, int], ...]:
    amounts = fields.child(key)
    found = []
    for resource in fields.mapping(key):
        try:
            found.append((resource, parse_canonical(amounts.text(resource), resource)))
        except ValueError:
            raise _error(
                amounts.at(resource), "a quantity as gangplan writes it", amounts.raw(resource)
            ) from None
    return tuple(sorted(found))


def _read_group(fields: _Fields) -> GroupPlan:
    return GroupPlan(
        group=fields.text("group"),
        api=fields.text("api"),
        policy=fields.text("policy"),
        min_count=fields.whole("minCount"),
        priority=fields.whole("priority"),
        outcome=fields.one_of("outcome", ("placed", "notPlaced")),
        cause=None if fields.raw("cause") is None else _read_cause(fields.child("cause")),
        domains=fields.children("domains", _read_domain),
        pods=fields.children("pods", _read_pod),
        pending_pods=fields.texts("pendingPods"),
        composite=fields.optional_text("composite"),
    )


def _read_cause(fields: _Fields) -> Cause:
    name = fields.one_of("is", get_args(CauseName))
    return Cause(name, fields.text("message"), fields.mapping("details"))


def _read_domain(fields: _Fields) -> ChosenDomain:
    return ChosenDomain(
        key=fields.text("key"),
        value=fields.text("value"),
        subgroup=fields.optional_text("subgroup"),
    )


def _read_pod(fields: _Fields) -> PlacedPod:
    return PlacedPod(
        pod=fields.text("pod"),
        node=fields.text("node"),
        subgroup=fields.optional_text("subgroup"),
        template=fields.optional_text("template"),
        devices=fields.children("devices", _read_device) if fields.has("devices") else (),
    )


def _read_device(fields: _Fields) -> PlacedDevice:
    return PlacedDevice(
        claim=fields.text("claim"),
        request=fields.text("request"),
        driver=fields.text("driver"),
        pool=fields.text("pool"),
        device=fields.text("device"),
    )


def _read_eviction(fields: _Fields) -> Eviction:
    return Eviction(
        pod=fields.text("pod"),
        node=fields.text("node"),
        group=fields.optional_text("group"),
        reason=fields.one_of("reason", ("preemption", "drain")),
        preemptor=fields.optional_text("for"),
    )


def _read_move(fields: _Fields) -> Move:
    return Move(
        step=fields.whole("step"),
        wave=fields.whole("wave"),
        pod=fields.text("pod"),
        source=fields.text("from"),
        target=fields.text("to"),
        mode=fields.one_of("mode", ("live", "restart")),
        group=fields.optional_text("group"),
    )


def _read_criteria(top: _Fields) -> dict[str, int]:
    fields = top.child("criteria")
    return {name: fields.whole(name) for name in top.mapping("criteria")}


def _read_bound(fields: _Fields) -> Bound:
    gap = fields.raw("gap")
    if gap is not None and (isinstance(gap, bool) or not isinstance(gap, int | float)):
        raise _error(fields.at("gap"), "a number or null", gap)
    return Bound(
        criterion=fields.text("criterion"),
        value=None if fields.raw("value") is None else fields.whole("value"),
        gap=gap,
        proof=fields.one_of("proof", ("optimal", "bound", "none")),
    )


def _read_object_error(fields: _Fields) -> ObjectError:
    return ObjectError(
        object=fields.text("object"),
        kind=fields.text("kind"),
        field=fields.text("field"),
        message=fields.text("message"),
    )


def _read_verification(top: _Fields) -> Verification | None:
    if top.raw("verification") is None:
        return None
    fields = top.child("verification")
    verification = Verification(
        checks=fields.whole("checks"),
        violations=fields.children(
            "violations",
            lambda f: Violation(
                f.text("rule"), f.text("object"), f.text("wanted"), f.text("found")
            ),
        ),
    )
    if fields.flag("valid") != verification.is_valid:
        raise _error(
            fields.at("valid"), "true exactly when no violation is listed", fields.raw("valid")
        )
    return verification
