"""How many more nodes or racks until everything that is asked for fits.

More room never hurts, so the number is found by doubling and halving: about twice its logarithm of
plans instead of one for every number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from data.scenarios.wire import AddNodes, DomainOf, add_copies
from ray_jobs.whatif import WhatIf, answer_scenarios
from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["Least", "find_least", "parse_addition"]

MOST: Final = 1024
"""Copies beyond which the search gives up."""


class Least(NamedTuple):
    """What a search for the least number found."""

    number: int | None
    """Copies that are enough, None where even the most tried are not."""
    tried: WhatIf
    """An answer for each number that was tried, ascending."""


def parse_addition(text: str) -> AddNodes:
    """Return what `--min-add` adds one of.

    Args:
      text: `like=NODE` for nodes or `like=KEY=VALUE` for whole domains, and after commas
        `label=KEY=VALUE` (repeatable) and `name=PREFIX`.

    Raises:
      RequestError: It cannot be read.

    Example:
      >>> addition = parse_addition("like=n1,label=rack=r9")
      >>> addition.like, addition.labels, addition.nodes
      ('n1', {'rack': 'r9'}, 1)
    """
    like = ""
    name = "added"
    labels: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if key == "like" and value:
            like = value
        elif key == "name" and value:
            name = value
        elif key == "label" and "=" in value:
            label, _, wanted = value.partition("=")
            labels[label] = wanted
        else:
            raise RequestError(
                f"--min-add: cannot read {part!r}; write like=NODE or like=KEY=VALUE, then "
                "label=KEY=VALUE or name=PREFIX, parted by commas"
            )
    if not like:
        raise RequestError("--min-add: says nothing to add; write like=NODE or like=KEY=VALUE")
    key, equals, value = like.rpartition("=")
    if equals:
        return AddNodes(name=name, domains=1, like=DomainOf(key, value), labels=labels)
    return AddNodes(name=name, nodes=1, like=like, labels=labels)


def find_least(
    snapshot: Snapshot,
    addition: AddNodes,
    request: Request,
    *,
    most: int = MOST,
    progress: Callable[[str], None] | None = None,
) -> Least:
    """Find the least number of copies with which every asked group is placed.

    Args:
      snapshot: The fleet.
      addition: One copy of what is added.
      request: What has to fit.
      most: Copies at which the search gives up.
      progress: Called with a line now and then.

    Raises:
      RequestError: What is to be copied is not in the snapshot.
    """
    say = progress or (lambda _: None)
    base = answer_scenarios(snapshot, [], request, progress=say).base
    tried = {0: replace(base, name="add-0")}

    def is_enough(number: int) -> bool:
        if number not in tried:
            say(f"trying {number} more")
            scenario = add_copies(f"add-{number}", addition, number)
            tried[number] = answer_scenarios(snapshot, [scenario], request, base=base).answers[0]
            if tried[number].error:
                reason = tried[number].error.partition(": ")[2].removeprefix("add[0].")
                raise RequestError(f"--min-add: {reason}")
        return tried[number].row["groupsNotPlaced"] == 0

    if is_enough(0):
        enough: int | None = 0
    else:
        enough = 1
        while enough <= most and not is_enough(enough):
            enough *= 2
        if enough > most:
            enough = None
        else:
            short = enough // 2
            while enough - short > 1:
                middle = (enough + short) // 2
                enough, short = (middle, short) if is_enough(middle) else (enough, middle)
    answers = tuple(tried[number] for number in sorted(tried))
    return Least(enough, WhatIf(base, answers))
