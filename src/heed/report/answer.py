"""The answer of an audit: one sentence, a tile for each family of claims, and what to do next.

The sentence follows from the verdicts by the rules below, from `RULES` to `CAUSAL`. It
speaks of the families that an answer needs (needed, determined, causal, signed and faithful), and
never folds them into one yes or no. The words of the tiles are in words.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import TYPE_CHECKING

from heed.audit.answer import Answer, Tile, Untested
from heed.claims import CLAIMS
from heed.claims.claim import GATES, Outcome
from heed.claims.study import NO_TRAINING
from heed.methods import reads_attention
from heed.report.numbers import number
from heed.report.words import SYMBOLS, falls_of, is_scaled, outcome, verdict_interval
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.claims import Verdict

YES: Outcome = "supported"
NO: Outcome = "refuted"
OPEN: Outcome = "undecided"
NONE: Outcome = "not applicable"

# The families in the order of their tiles, and their claims: the first that was judged leads.
TILES: dict[str, tuple[str, ...]] = {
    "needed": ("needed", "used"),
    "determined": ("exclusive", "exclusive-model", "identified", "stable"),
    "causal": ("efficient-necessary", "efficient-near"),
    "agrees": ("agrees-removal", "agrees-gradient", "agrees-lime", "tracks", "robust"),
    "signed": ("signed",),
    "informative": ("informative",),
    "faithful": ("removes", "suffices", "competitive", "sensitive"),
    "plausible": ("plausible", "edited"),
}

# Whether the words that it points to matter, whether they speak for the label -> what is said.
# {it}: the explanation; {words}: what has a score; {why}, {sign_why}: why this is undecided.
RULES: dict[tuple[Outcome, Outcome], str] = {
    (YES, YES): "{it} finds {words} that matter, and these speak for the label",
    (YES, NO): "{it} finds {words} that matter, but not whether they speak for or against the"
    " label",
    (YES, OPEN): "{it} finds {words} that matter; whether they speak for or against the label is"
    " undecided{sign_why}",
    (YES, NONE): "{it} finds {words} that matter; whether they speak for or against the label was"
    " not judged",
    (NO, YES): "{it} points to {words} that speak for the label but hardly matter more than random"
    " ones",
    (NO, NO): "{it} finds neither {words} that matter more than random ones nor whether they speak"
    " for or against the label",
    (NO, OPEN): "the {words} that {it} points to hardly matter more than random ones",
    (NO, NONE): "the {words} that {it} points to hardly matter more than random ones",
    (OPEN, YES): "{it} points to {words} that speak for the label; whether these matter more than"
    " random ones is undecided{why}",
    (OPEN, NO): "{it} does not tell whether its {words} speak for or against the label; whether"
    " they matter more than random ones is undecided{why}",
    (OPEN, OPEN): "it is undecided whether {it} finds {words} that matter{why}, and whether these"
    " speak for the label{sign_why}",
    (OPEN, NONE): "it is undecided whether {it} finds {words} that matter{why}",
    (NONE, YES): "{it} points to {words} that speak for the label; whether these matter was not"
    " judged",
    (NONE, NO): "{it} does not tell whether its {words} speak for or against the label; whether"
    " they matter was not judged",
    (NONE, OPEN): "it is undecided whether {it} points to {words} that speak for the label"
    "{sign_why}; whether these matter was not judged",
    (NONE, NONE): "it was not judged whether {it} finds {words} that matter",
}
# The same, where the gate is closed: after "the prediction does not depend on …".
BEHIND_GATE: dict[Outcome, str] = {
    YES: ", although the {words} that it points to matter",
    NO: ", and the {words} that it points to hardly matter more than random ones",
    OPEN: "",
    NONE: "",
}
# Whether other attention would do as well.
DETERMINED: dict[Outcome, str] = {
    YES: "no very different attention gives the same predictions",
    NO: "very different attention would give the same predictions",
    OPEN: "whether very different attention would give the same predictions is undecided{why}",
}
# Whether attention follows from the output, where nothing was found on very different attention.
IDENTIFIED: dict[Outcome, str] = {
    YES: "the output determines attention",
    NO: "other attention would give the same output",
    OPEN: "whether the output determines attention is undecided{why}",
}
# Whether the part of attention that can show in the output moves it.
CAUSAL: dict[Outcome, str] = {
    YES: "a change of attention that can show in the output does change the prediction",
    NO: "even a change of attention that can show in the output hardly changes the prediction",
    OPEN: "whether a change of attention changes the prediction is undecided{why}",
}
# Why a claim is undecided, where that can be said in a few words.
_WHY = {
    "few": "too few documents",
    "operators": "it depends on how {words} are removed",
    "chance": "chance passes as well",
    "statistic": "no document shows it",
}
# Below this, what is left of a change of the probability is noise of the model's arithmetic.
_NOTHING = 1e-4

_TABLES = tomllib.loads(resources.files("heed.report").joinpath("words.toml").read_text("utf8"))


def answer(audit: Audit) -> Answer:
    """The answer of an audit, from its verdicts alone."""
    methods = list(audit.facts["methods"])
    first = methods[0] if methods else "attention-mean"
    return Answer(
        first,
        sentence(audit, first),
        tuple(_tile(audit, family, first) for family in TILES),
        {method: _further(audit, method) for method in methods[1:]},
        _use_instead(audit, first),
        tuple(_not_tested(audit)),
    )


# The sentence


def sentence(audit: Audit, method: str) -> str:
    """What the verdicts say of one method, by the rules above."""
    found = {v.claim.id: v for v in audit.verdicts if v.method == method or not _of_method(v)}
    words = f"{audit.facts.get('unit', 'word')}s"
    names = {"it": _called(method), "words": words}
    if _ignores_words(audit, method):
        return (
            f"On these documents the model's output does not depend on its {words}, so no"
            f" {words} can explain it."
        )
    matter, speaks = _outcome(found, "removes", "suffices"), _outcome(found, "signed")
    gate = _gate(found) if reads_attention(method) else None
    if gate and gate.outcome == NO:
        rest = BEHIND_GATE[matter].format(**names)
        return f"On these documents {_ignored(audit, gate, method)}{rest}."
    if few := _too_few(found):
        return f"{few} are too few to say whether {names['it']} finds {words} that matter."
    why = _why(found, words, "removes", "suffices")
    sign_why = _why(found, words, "signed")
    parts = [RULES[matter, speaks].format(**names, why=why, sign_why=sign_why)]
    if _outcome(found, "sensitive") == NO:
        parts.append(f"{names['it']} hardly depends on what the model has learnt")
    if reads_attention(method):
        parts += _of_attention(found, words, gate)
    return f"On these documents {'; '.join(parts)}."


def _further(audit: Audit, method: str) -> str:
    """The sentence on a further method, which does not repeat of what it speaks."""
    text = sentence(audit, method).removeprefix("On these documents ")
    return text if text.startswith(_called(method)) else text[0].upper() + text[1:]


def _of_attention(found: Mapping[str, Verdict], words: str, gate: Verdict | None) -> Iterator[str]:
    """What is said of the model's attention, whatever method reads it."""
    different, identified = ("exclusive", "exclusive-model"), _outcome(found, "identified")
    among = [_outcome(found, name) for name in different]
    # one way to other attention is enough; none counts only where none was found
    determined = next((o for o in (NO, OPEN, YES) if o in among), NONE)
    if determined == NONE or (identified == NO and determined != NO):
        if identified in IDENTIFIED:
            yield IDENTIFIED[identified].format(why=_why(found, words, "identified"))
    else:
        yield DETERMINED[determined].format(why=_why(found, words, *different))
    causal = _outcome(found, *TILES["causal"][:1])
    if causal in CAUSAL:
        yield CAUSAL[causal].format(why=_why(found, words, *TILES["causal"][:1]))
    if gate is None or gate.outcome == OPEN:
        judged = "was not judged" if gate is None else "is undecided"
        yield f"whether the prediction depends on where attention goes {judged}"


def _of_method(verdict: Verdict) -> bool:
    return verdict.claim.of_explanation


def _called(method: str) -> str:
    return "attention" if method == "attention-mean" else printable(method)


def _outcome(found: Mapping[str, Verdict], *claims: str) -> Outcome:
    """The outcome of the first of some claims that was judged."""
    outcomes = [found[name].outcome for name in claims if name in found]
    return next((o for o in outcomes if o != NONE), NONE)


def _why(found: Mapping[str, Verdict], words: str, *claims: str) -> str:
    """Why the first undecided of some claims is so, in brackets; empty if it merely spans."""
    causes = [found[c].cause for c in claims if c in found and found[c].outcome == OPEN]
    text = _WHY.get(str(causes[0]), "") if causes else ""
    return f" ({text.format(words=words)})" if text else ""


def _gate(found: Mapping[str, Verdict]) -> Verdict | None:
    """The claim that says whether attention is needed: the first that was judged."""
    return next((found[g] for g in GATES if g in found and found[g].outcome != NONE), None)


def _ignored(audit: Audit, gate: Verdict, method: str) -> str:
    """That the model does not need the attention that is judged."""
    layers = audit.facts["methods"].get(method, {}).get("layers")
    where = "attention in the last layer" if layers == "last" else "attention"
    if gate.claim.id == "needed":
        return f"a model with uniform attention does as well, so {where} cannot explain much"
    below = ", but on the layers below," if _carried_below(audit) else ""
    return (
        f"the prediction does not depend on where {where} goes{below or ','} so"
        f" {_called(method)} cannot explain it"
    )


def _carried_below(audit: Audit) -> bool:
    """Whether the prediction depends on where attention goes in all layers together."""
    for e in audit.judged:
        if e.claim.id == "used" and (mean := e.mean("all_layers")) is not None:
            return mean > e.claim.threshold
    return False


def _too_few(found: Mapping[str, Verdict]) -> str:
    """How few documents there are, if that is why all that was judged is undecided."""
    judged = [v for v in found.values() if v.outcome != NONE]
    if not judged or any(v.outcome != OPEN or v.cause != "few" for v in judged):
        return ""
    return f"These {counted(max(v.n for v in judged))}"


def _ignores_words(audit: Audit, method: str) -> bool:
    """Whether no removal of words that was tried changed the output."""
    changes: list[float] = []
    for e in audit.evidence:
        if e.claim.id in ("removes", "suffices") and e.method == method:
            changes += [abs(mean) for c in _CHANGES if (mean := e.mean(c)) is not None]
    return bool(changes) and max(changes) < _NOTHING


# Columns that say how far the probability falls without some words.
_CHANGES = ("comprehensiveness", "random", "best", "worst", "sufficiency", "random_sufficiency")


# Tiles


def _tile(audit: Audit, family: str, method: str) -> Tile:
    """The claims of a family: the first that was judged in full, the others by their outcomes."""
    order = [*TILES[family], *(c for c in CLAIMS if CLAIMS[c].claim.family == family)]
    by_id = {v.claim.id: v for v in audit.verdicts if v.method == method or not _of_method(v)}
    found = [by_id[name] for name in dict.fromkeys(order) if name in by_id]
    if not found:
        return Tile(family, NONE, SYMBOLS[NONE], "not asked for")
    # a claim of another family, which stands here beside the others, does not lead
    lead = next((v for v in found if v.outcome != NONE and v.claim.family == family), found[0])
    judged = lead.outcome != NONE and lead.mean is not None
    return Tile(
        family,
        lead.outcome,
        SYMBOLS[lead.outcome],
        _says(lead),
        lead.claim.id,
        number(lead.mean) if judged else "",
        verdict_interval(lead) if judged else "",
        lead.claim.side() if judged else "",
        tuple((v.claim.id, SYMBOLS[v.outcome]) for v in found if v is not lead),
    )


def _says(verdict: Verdict) -> str:
    """A verdict in a few words."""
    texts = _TABLES["tiles"].get(verdict.claim.id, {})
    if verdict.outcome in texts:
        return str(texts[verdict.outcome])
    if verdict.outcome == OPEN:
        return f"undecided: {_TABLES['undecided'].get(str(verdict.cause), 'no clear side')}"
    return outcome(verdict)


# What to do next


def _use_instead(audit: Audit, method: str) -> str:
    """A method that was found to be better: by a ranking of this model, else by this audit."""
    if best := audit.facts.get("recommended"):
        if best["method"] == method:
            return ""
        ranked = f"ranked on {counted(best['documents'])} of {best['data']}"
        return printable(f"{best['method']}: {best['reason']} ({ranked})")
    return _best_rival(audit, method)


def _best_rival(audit: Audit, method: str) -> str:
    """Which of the compared methods finds words that matter more, where attention falls short."""
    judged = zip(audit.judged, audit.verdicts, strict=True)
    pairs = [(e, v) for e, v in judged if v.claim.id == "competitive" and v.method == method]
    if not pairs or pairs[0][1].outcome == YES:
        return ""
    falls = falls_of(pairs[0][0])
    best = max(falls, key=falls.__getitem__, default=method)
    own = falls.get(printable(method), 0.0)
    if best == printable(method) or not falls[best] > max(0.0, own):
        return ""
    ours, theirs = f"{_called(method)}: {number(own)}", number(falls[best])
    if not is_scaled(pairs[0][0]):
        return f"{best}, without whose words the probability falls by {theirs} ({ours})"
    return (
        f"{best}, whose words reach {theirs} on the scale from the worst order of removal (0) to"
        f" the best (1); {ours}"
    )


def _not_tested(audit: Audit) -> Iterator[Untested]:
    """Claims that were not tested, by what it takes to test them; what cannot apply is left out."""
    by_how: dict[str, list[str]] = {}
    for v in audit.verdicts:
        if how := _how(v):
            by_how.setdefault(how, []).append(v.claim.id)
    for how, claims in by_how.items():
        yield Untested(tuple(dict.fromkeys(claims)), how)
    tested = {e.claim.id for e in audit.evidence}
    if missing := tuple(name for name in CLAIMS if name not in tested):
        yield Untested(missing, "leave out --claim")


def _how(verdict: Verdict) -> str:
    """How to test a claim that was not tested; empty if it was, or cannot apply."""
    if verdict.outcome != NONE or verdict.cause in ("gate", "method", "yardstick", None):
        return ""
    if verdict.cause == "training" and verdict.reason == NO_TRAINING.reason:
        return "--train"
    if verdict.cause == "data" and verdict.claim.id in _TABLES["data"]:
        return str(_TABLES["data"][verdict.claim.id])
    if verdict.cause == "budget":
        return "a larger --budget"
    reason, _, _ = verdict.reason.partition(" (")  # without what only experts need
    return reason
