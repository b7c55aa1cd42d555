"""What an audit comes to, as a value; `heed.report.answer` puts it into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heed.claims.claim import Outcome


@dataclass(frozen=True)
class Tile:
    """What an audit says of one family of claims.

    outcome    that of the claim which leads the family
    symbol     the same as ✓, ✗, ~ or –
    says       the same in a few words
    claim      the leading claim; empty if none was tested
    value      its statistic, as it is written; empty if it has none
    interval   the same with its interval
    threshold  the side of the threshold on which it holds
    others     the other claims of the family, with their symbols
    """

    family: str
    outcome: Outcome
    symbol: str
    says: str
    claim: str = ""
    value: str = ""
    interval: str = ""
    threshold: str = ""
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Untested:
    """Claims that were not tested, and how to test them."""

    claims: tuple[str, ...]
    how: str


@dataclass(frozen=True)
class Answer:
    """What an audit comes to, at a glance. Printed, it is its sentence.

    method       the first that was judged
    sentence     what the verdicts say of it; never one yes or no
    tiles        one for each family of claims
    beside       the sentence on each further method
    use_instead  a method whose words matter more, and how much; empty if there is none
    not_tested   claims that were not tested, and how to test them
    """

    method: str
    sentence: str
    tiles: tuple[Tile, ...]
    beside: Mapping[str, str]
    use_instead: str
    not_tested: tuple[Untested, ...]

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """The answer for other programs, of lists and dictionaries alone."""
        tiles = [asdict(tile) | {"others": dict(tile.others)} for tile in self.tiles]
        not_tested = [{"claims": list(u.claims), "how": u.how} for u in self.not_tested]
        return asdict(self) | {"tiles": tiles, "not_tested": not_tested}
