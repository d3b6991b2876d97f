"""Checks what a case expects of an answer; tests/cases/README.md explains the forms."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Answer"]

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """An inspection and a plan of one snapshot, as JSON documents."""

    inspection: Mapping[str, Any]
    plan: Mapping[str, Any]

    def check(self, entry: Fields) -> None:
        """Assert that one entry of `expect` holds."""
        ((form, want),) = entry.items()
        if form == "import":
            self._check_import(want)
        elif isinstance(want, dict) and "group" in want:
            self._check_group(form, want)
        else:
            self._check_plan(form, want)

    def _check_import(self, entry: Fields) -> None:
        ((form, want),) = entry.items()
        match form:
            case "free" | "allocatable":
                self._same(self._node(want["node"])[form], want)
            case "requests":
                self._same(self._find("pods", "pod", want["pod"])["requests"], want)
            case "freeDevices":
                devices = self._node(want["node"])["devices"]
                assert devices[want["class"]]["free"] == want["value"]
            case "group":
                group = self._find("groups", "group", want["ref"])
                assert {key: group[key] for key in want if key != "ref"} == {
                    key: value for key, value in want.items() if key != "ref"
                }
            case "domain":
                assert self._domain(want["node"], want["key"]) == want["value"]
            case "pending" | "gated":
                found = [p["pod"] for p in self.inspection["pods"] if p["state"] == form]
                assert found == sorted(want)
            case _:
                raise AssertionError(f"unknown form {form}")

    def _check_plan(self, form: str, want: Any) -> None:
        pods = self._new_pods()
        match form:
            case "placed":
                assert self._is_placed(want)
            case "notPlaced":
                assert not self._is_placed(want)
            case "allOrNothing":  # asking already asserts that outcome and pods agree
                assert all(self._is_placed(group) in (True, False) for group in want)
            case "groupsPlaced":
                assert sum(map(self._is_placed, want["of"])) == want["exactly"]
            case "nodesNever":
                assert not {p["node"] for p in pods} & set(want)
            case "podOn":
                (node,) = (p["node"] for p in pods if p["pod"] == want["pod"])
                assert node in want.get("anyOf", [want.get("node")])
            case "evicted":
                assert {e["pod"] for e in self.plan["evictions"]} == set(want["exactly"])
            case "victims":
                gone = {e["pod"] for e in self.plan["evictions"]}
                assert gone == set(want.get("exactly", [] if "none" in want else gone))
                assert not gone & set(want.get("excludes", []))
            case "moves":
                self._check_moves(want)
            case "finalNode":
                assert self._final_nodes()[want["pod"]] == want["node"]
            case "cost":
                assert self.plan["criteria"][want["of"]] == want["exactly"]
            case _:
                raise AssertionError(f"unknown form {form}")

    def _final_nodes(self) -> dict[str, str]:
        return {move["pod"]: move["to"] for move in self.plan["moves"]}

    def _check_moves(self, want: Fields) -> None:
        """Executable plans are those that the verifier, run on every answer, replays."""
        moves, final = self.plan["moves"], self._final_nodes()
        assert len(moves) == want["exactly"]
        assert set(final) == set(want.get("pods", final))
        assert set(final.values()) == set(want.get("targets", final.values()))
        sequence = [[move["pod"], move["to"]] for move in moves]
        assert sequence == want.get("sequence", sequence)

    def _check_group(self, form: str, want: Fields) -> None:
        group = self._planned(want["group"])
        pods = group["pods"]
        match form:
            case "podsPlaced":
                assert len(pods) == want["exactly"]
            case "podsPerNode":
                podset = want.get("podset")
                counts = Counter(p["node"] for p in pods if podset in (None, p["template"]))
                assert counts == want["counts"]
            case "inDomain":
                subgroup = want.get("subgroup")
                nodes = [p["node"] for p in pods if subgroup in (None, p["subgroup"])]
                assert nodes
                if subgroup is None:
                    nodes += self._running_on(want["group"])
                assert {self._domain(n, want["key"]) for n in nodes} == {want["value"]}
            case "subgroups":
                self._check_subgroups(pods, want)
            case "leader":
                (leader,) = (p for p in pods if p["template"] == "leader")
                index = None if want["subgroup"] is None else str(want["subgroup"])
                assert (leader["subgroup"], leader["node"]) == (index, want["node"])
            case "cause":
                text = json.dumps(group["cause"])
                assert group["cause"]["is"] == want["is"], text
                assert [m for m in want.get("mentions", []) if str(m) not in text] == []
            case _:
                raise AssertionError(f"unknown form {form}")

    def _check_subgroups(self, pods: list[Fields], want: Fields) -> None:
        domains: dict[int, list[str | None]] = {}
        for pod in pods:
            if pod["subgroup"] is not None:
                domain = self._domain(pod["node"], want["key"])
                domains.setdefault(int(pod["subgroup"]), []).append(domain)
        assert [len(domains[i]) for i in sorted(domains)] == want["sizes"]
        assert all(len(set(found)) == 1 for found in domains.values())
        chosen = [found[0] for found in domains.values()]
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) == set(want["domains"])

    def _same(self, amounts: Fields, want: Fields) -> None:
        resource = want["resource"]
        found = parse_quantity(amounts.get(resource, "0"), resource)
        assert found == parse_quantity(want["value"], resource)

    def _find(self, part: str, key: str, name: str) -> Fields:
        entry: Fields = next(e for e in self.inspection[part] if e[key] == name)
        return entry

    def _node(self, name: str) -> Fields:
        return self._find("nodes", "node", name)

    def _domain(self, node: str, key: str) -> str | None:
        value: str | None = self._node(node)["domains"].get(key)
        return value

    def _planned(self, ref: str) -> Fields:
        group: Fields = next(g for g in self.plan["groups"] if g["group"] == ref)
        return group

    def _is_placed(self, ref: str) -> bool:
        group = self._planned(ref)
        assert (group["outcome"] == "placed") == bool(group["pods"])
        return bool(group["pods"])

    def _new_pods(self) -> list[Fields]:
        return [pod for group in self.plan["groups"] for pod in group["pods"]]

    def _running_on(self, ref: str) -> list[str]:
        members = [p for p in self.inspection["pods"] if p["group"] == ref]
        return [p["node"] for p in members if p["state"] == "bound"]
