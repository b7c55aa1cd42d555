"""Counting letters with one attention layer: equal accuracy, informative attention or not.

A letter x_t = [e(letter), p(position)] attends by A = softmax(x W Wᵀ xᵀ), the same W for queries
and keys, and a small network reads the count of its letter from its embedding and from what
attention collected. The network can learn to count with attention on equal letters (semantic), and
also with attention that knows positions alone (positional).
"""

from __future__ import annotations

from itertools import product
from typing import Any

from heed.papers.lab import Lab
from heed.papers.results import Outcome, Results, figure
from heed.papers.table import Row, Table
from heed.progress import bar

LENGTH, LETTERS, DIM = 10, 12, 16
WORD = "DATAIAIAIA"


def histogram(lab: Lab) -> Outcome:
    """Train from three kinds of start, and look at the attention of what comes out."""
    seeds, steps = lab.pick(1, 5), lab.pick(300, 4000)
    results = Results("histogram", "generated")
    rows = Table()
    maps: list[Row] = []
    runs = list(product(("semantic", "positional", "random"), range(seeds)))
    for start, seed in bar(runs, "histogram", unit="run"):
        run = _trained(start, seed, steps)
        attention = run.pop("map")
        rows.append({"start": start, "seed": seed} | run)
        if seed == 0:
            maps += [
                {"start": start, "from": f"{i} {WORD[i]}", "to": f"{j} {WORD[j]}"}
                | {"attention": float(attention[i, j])}
                for i, j in product(range(LENGTH), range(LENGTH))
            ]
    for start, trained in rows.by("start"):
        results.model = f"{start} start"
        results.add_means(trained, "histogram")
    _add_verdict(results, rows)
    return Outcome(results, [figure("maps", maps, {"word": WORD})], {"runs": rows})


def _add_verdict(results: Results, rows: list[Row]) -> None:
    """Whether good solutions of both kinds were found."""
    best = max(r["accuracy"] for r in rows)
    good = [r["informative"] for r in rows if r["accuracy"] >= best - 0.02]
    informative = sum(share > 0.2 for share in good)
    uninformative = sum(share < 0.05 for share in good)
    both = informative > 0 and uninformative > 0 and best > 0.9
    results.add(
        "both kinds of solution found",
        float(both),
        n=len(rows),
        published="two minima",
        note=f"Among the runs within two points of the best accuracy ({best:.3f}),"
        f" {informative} attend to equal letters and {uninformative} do not: "
        + ("both kinds of solution exist." if both else "only one kind was found here."),
        model="all",
    )


def _trained(start: str, seed: int, steps: int) -> dict[str, Any]:
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(seed)
    letters = torch.randn(LETTERS, DIM, generator=generator) / DIM**0.5
    places = torch.randn(LENGTH, DIM, generator=generator) / DIM**0.5
    W = torch.randn(2 * DIM, 2 * DIM, generator=generator) * 0.02
    half = slice(0, DIM) if start == "semantic" else slice(DIM, 2 * DIM)
    if start != "random":
        W[half, half] += 2 * torch.eye(DIM)
    hidden = 128
    parameters = [
        nn.Parameter(p)
        for p in (
            letters,
            places,
            W,
            torch.randn(4 * DIM, hidden, generator=generator) * (4 * DIM) ** -0.5,
            torch.zeros(hidden),
            torch.randn(hidden, LENGTH, generator=generator) * hidden**-0.5,
        )
    ]

    def forward(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        e, p, w, one, bias, two = parameters
        x = torch.cat([e[ids], p.expand(len(ids), -1, -1)], -1)
        q = x @ w
        attention = (q @ q.transpose(1, 2)).softmax(-1)
        return torch.relu(torch.cat([x, attention @ x], -1) @ one + bias) @ two, attention

    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    for _ in range(steps):
        ids = torch.randint(LETTERS, (256, LENGTH), generator=generator)
        counts = (ids[:, :, None] == ids[:, None]).sum(-1) - 1
        loss = nn.functional.cross_entropy(forward(ids)[0].flatten(0, 1), counts.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        ids = torch.randint(LETTERS, (4000, LENGTH), generator=generator)
        same = ids[:, :, None] == ids[:, None]
        logits, attention = forward(ids)
        right = (logits.argmax(-1) == same.sum(-1) - 1).float().mean()
        # a letter that looks at itself has learnt nothing
        others = ~torch.eye(LENGTH, dtype=torch.bool)
        equal, several = same & others, (same & others).any(-1)
        elsewhere = (attention * others).sum(-1).clamp(min=1e-12)
        on_equal = ((attention * equal).sum(-1) / elsewhere)[several].mean()
        chance = (equal.sum(-1) / (LENGTH - 1))[several].mean()
        alphabet = {c: i for i, c in enumerate(dict.fromkeys(WORD))}
        on_word = forward(torch.tensor([[alphabet[c] for c in WORD]]))[1][0]
    return {
        "accuracy": float(right),
        "informative": float(on_equal - chance),
        "chance": float(chance),
        "map": on_word.numpy(),
    }
