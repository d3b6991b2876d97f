"""Pod templates inside the objects of other APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from data.importers.base import ReadProblem
from data.importers.fields import find_field, read_map, read_strings, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext
    from topology.model import PodSpec

__all__ = ["Template", "read_template"]


class Template(NamedTuple):
    """A pod template as pods made from it will be."""

    spec: PodSpec
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    priority: int


def read_template(
    context: ImportContext, body: Mapping[str, Any], field: str, namespace: str, *, at: str = ""
) -> Template:
    """Read the pod template at a dotted path.

    Args:
      context: Builds specs and resolves priority classes.
      body: Object or part of one.
      field: Path of the template below `body`.
      namespace: Of the pods.
      at: Path of `body` in its object, for messages.

    Raises:
      ReadProblem: The template is absent or cannot be read.
    """
    path = f"{at}.{field}" if at else field
    template = read_map(body, field, at=at)
    if not template.get("spec"):
        raise ReadProblem(f"{path}.spec", "is missing; give the pod template")
    try:
        spec = context.build_spec(template, namespace)
    except ReadProblem as problem:
        below = problem.field.removeprefix("template").lstrip(".")
        raise ReadProblem(f"{path}.{below}" if below else path, problem.message) from problem
    own = find_field(template, "spec.priority", at=path)
    return Template(
        spec,
        read_strings(template, "metadata.labels", at=path),
        read_strings(template, "metadata.annotations", at=path),
        context.priority_of(
            read_text(template, "spec.priorityClassName", at=path),
            own if isinstance(own, int) and not isinstance(own, bool) else None,
        ),
    )
