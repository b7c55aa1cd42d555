"""Plans in words: what will be tested, and whether an audit went as planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from heed.progress import roughly
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Audit, Cost, Plan

_SHOWN = 12  # characters of a hash on a terminal: enough to tell plans apart


def terminal(plan: Plan) -> RenderableType:
    """A plan on a terminal: what is tested on what, and its hash in full."""
    return Group(*_lines(plan))


def _lines(plan: Plan) -> Iterator[Text]:
    model = printable(f"{plan.model}@{plan.revision}")
    yield Text.assemble(
        ("Plan to audit ", "dim"), (model, "bold"), (" on ", "dim"), (printable(plan.data), "bold")
    )
    methods = ", ".join(map(printable, plan.methods))
    documents = counted(plan.documents)
    if plan.until_decided:
        documents = f"until every claim is decided, at most {documents}"
    yield Text(f"{documents} · judged: {methods} · seed {plan.seed} · {plan.unit}s")
    claims = ", ".join(f"{name} ({claim.side})" for name, claim in plan.claims.items())
    yield Text(f"{counted(len(plan.pairs), 'verdict')}: {claims}")
    yield Text(f"hash {plan.hash}", style="dim")


def estimate(costs: Sequence[Cost]) -> RenderableType:
    """What each claim of an audit takes, as a table on a terminal."""
    known = [c.seconds for c in costs if c.seconds is not None]
    total = sum(known)
    lines = []
    for c in costs:
        share = "" if c.seconds is None or not total else f"{c.seconds / total:4.0%}"
        taken = "trains again" if c.seconds is None else roughly(c.seconds)
        lines.append(Text(f"{c.claim:22}{taken:>12}{share:>7}"))
    trains = len(known) < len(costs)
    beside = "without training again, " if trains else ""
    lines.append(Text(f"{'together':22}{roughly(total):>12}", style="bold"))
    lines.append(Text(f"{beside}measured on three documents".strip(), style="dim"))
    return Group(*lines)


def drawn(facts: dict[str, Any]) -> str:
    """How many documents an audit has, and how they were drawn."""
    text = counted(facts["documents"])
    if facts.get("clusters"):
        text += f" in {counted(facts['clusters'], 'cluster')}"
    if facts.get("until_decided"):
        text += ", added until all is decided that they can decide"
    return text


def followed(audit: Audit, short: bool = False) -> str:
    """Whether an audit went as planned, and how not; empty without a plan."""
    plan = audit.facts.get("plan")
    if plan is None:
        return ""
    name = printable(plan["hash"])[: _SHOWN if short else None]
    if not plan["departures"]:
        return f"as planned ({name})"
    return printable(f"departs from the plan ({name}): {'; '.join(plan['departures'])}")
