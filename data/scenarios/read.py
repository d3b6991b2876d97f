"""A scenarios file -> scenarios with unique names, matrices and random draws written out."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from data.remote import fetch_all, is_remote
from data.scenarios.select import find_levels, list_domains
from data.scenarios.wire import Scenario
from data.yaml_documents import YamlProblem, load_documents
from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topology.model import Snapshot

__all__ = ["MAX_SCENARIOS", "expand_scenarios", "read_scenarios"]

MAX_SCENARIOS: Final = 100_000
"""Scenarios a file may come to; a matrix grows fast."""
_MAX_BYTES: Final = 64 << 20
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")


def read_scenarios(path: str, snapshot: Snapshot) -> list[Scenario]:
    """Read a file and write out its matrices and random draws.

    Args:
      path: A YAML or JSON file: a list of scenarios, or a map with key `scenarios`.
      snapshot: Names the domains that random failures are drawn from.

    Returns:
      Scenarios in the order of the file; a matrix in the order of its lists, the last fastest.

    Raises:
      RequestError: The file cannot be read, is no list of scenarios, or two have one name.
    """
    if is_remote(path):
        with fetch_all([path]) as local:
            return read_scenarios(local[0], snapshot)
    try:
        content = Path(path).read_bytes()
    except OSError as problem:
        raise RequestError(f"{path}: cannot be read: {problem.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise RequestError(f"{path}: is larger than 64 MiB; use matrix or random")
    try:
        documents = [d for d in load_documents(content) if d is not None]
    except YamlProblem as problem:
        raise RequestError(f"{path}: {problem}; correct it") from None
    if len(documents) != 1:
        raise RequestError(f"{path}: holds {len(documents)} documents; write one list of scenarios")
    try:
        return expand_scenarios(_inline_manifests(_convert(documents[0]), path), snapshot)
    except RequestError as problem:
        raise RequestError(f"{path}: {problem}") from None


def _convert(document: Any) -> list[Any]:
    """Return the scenarios as plain maps; types are checked once texts are filled in."""
    if isinstance(document, dict):
        unknown = sorted(set(document) - {"scenarios", "apiVersion", "kind"})
        if unknown or "scenarios" not in document:
            what = f"unknown key {unknown[0]!r}" if unknown else "no key scenarios"
            raise RequestError(f"{what}; write a list of scenarios, or a map with key scenarios")
        document = document["scenarios"]
    if not isinstance(document, list) or not document:
        raise RequestError("holds no list of scenarios; write - name: … for each")
    return document


def _inline_manifests(entries: list[Any], path: str) -> list[Any]:
    """Put the objects of manifest files in place of their names, so that workers need no files."""
    for i, entry in enumerate(entries):
        groups = entry.get("groups") if isinstance(entry, dict) else None
        added = groups.get("add") if isinstance(groups, dict) else None
        for item in added if isinstance(added, list) else [added]:
            if isinstance(item, dict) and isinstance(item.get("manifest"), str):
                where = f"scenario {i + 1}: groups.add.manifest"
                item["manifest"] = _load_manifest(Path(path).parent / item["manifest"], where)
    return entries


def _load_manifest(file: Path, where: str) -> list[Any]:
    try:
        return [d for d in load_documents(file.read_bytes()) if d is not None]
    except OSError as problem:
        raise RequestError(f"{where}: {file}: cannot be read: {problem.strerror}") from None
    except YamlProblem as problem:
        raise RequestError(f"{where}: {file}: {problem}; correct it") from None


def expand_scenarios(entries: Sequence[Any], snapshot: Snapshot) -> list[Scenario]:
    """Check scenarios and write out their matrices and random draws.

    Args:
      entries: Plain maps, as YAML gives them.
      snapshot: As for `read_scenarios`.

    Raises:
      RequestError: As `read_scenarios`.
    """
    found: list[Scenario] = []
    for i, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        where = f"scenario {name if isinstance(name, str) and name else i + 1}"
        try:
            for filled in _fill_matrix(entry, where):
                scenario = msgspec.convert(filled, Scenario)
                found += _draw(scenario, snapshot)
                if len(found) > MAX_SCENARIOS:
                    raise RequestError(
                        f"{where}: the file comes to more than {MAX_SCENARIOS} scenarios; "
                        "make the matrix smaller"
                    )
        except msgspec.ValidationError as error:
            raise RequestError(f"{where}: {error}; correct it") from None
    seen: set[str] = set()
    for scenario in found:
        if scenario.name in seen:
            raise RequestError(
                f"scenario {scenario.name}: the name is taken; give each its own "
                "(in a matrix by ${KEY} in the name)"
            )
        seen.add(scenario.name)
    return found


def _fill_matrix(entry: Any, where: str) -> Iterator[Any]:
    matrix = entry.get("matrix") if isinstance(entry, dict) else None
    if not matrix:
        yield entry
        return
    if not isinstance(matrix, dict) or not all(isinstance(v, list) and v for v in matrix.values()):
        raise RequestError(f"{where}: matrix: write a list of values for each key")
    body = {key: value for key, value in entry.items() if key != "matrix"}
    keys = list(matrix)
    named = isinstance(body.get("name"), str) and _VARIABLE.search(body["name"])
    for values in itertools.product(*matrix.values()):
        variables = dict(zip(keys, values, strict=True))
        filled = _fill(body, variables, where)
        if not named and isinstance(filled.get("name"), str):
            listed = ",".join(f"{key}={_write(value)}" for key, value in variables.items())
            filled["name"] = f"{filled['name']}[{listed}]"
        yield filled


def _fill(value: Any, variables: Mapping[str, Any], where: str) -> Any:
    """Put values in place of `${KEY}`; a text that is nothing else takes the value's type."""
    if isinstance(value, dict):
        return {
            _fill(key, variables, where): _fill(inner, variables, where)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_fill(inner, variables, where) for inner in value]
    if not isinstance(value, str):
        return value
    for key in _VARIABLE.findall(value):
        if key not in variables:
            raise RequestError(f"{where}: ${{{key}}}: is not in the matrix; add it there")
    whole = _VARIABLE.fullmatch(value)
    if whole:
        return variables[whole[1]]
    return _VARIABLE.sub(lambda found: _write(variables[found[1]]), value)


def _write(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _draw(scenario: Scenario, snapshot: Snapshot) -> Iterator[Scenario]:
    if scenario.random is None:
        yield scenario
        return
    drawn, level = scenario.random, scenario.random.fail.level
    where = f"scenario {scenario.name}: random.fail"
    if scenario.fail:
        raise RequestError(f"{where}: fail is given too; leave one out")
    names = list_domains(snapshot, level)
    if not names:
        known = ", ".join(find_levels(snapshot))
        raise RequestError(f"{where}.level: no node has the label {level!r}; use one of {known}")
    if drawn.fail.count > len(names):
        raise RequestError(f"{where}.count: is {drawn.fail.count}, of {len(names)} there are")
    width = len(str(drawn.samples - 1))
    for i in range(drawn.samples):
        # Each sample by itself, so that more samples keep the earlier ones.
        chosen = sorted(random.Random(f"{drawn.seed}/{i}").sample(names, drawn.fail.count))
        failed: list[str | dict[str, str]] = (
            [*chosen] if level == "node" else [{level: value} for value in chosen]
        )
        yield msgspec.structs.replace(
            scenario, name=f"{scenario.name}-{i:0{width}}", fail=failed, random=None
        )
