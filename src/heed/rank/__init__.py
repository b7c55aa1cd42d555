"""Which method to use: `rank` measures methods on the same documents, a `Ranking` compares them."""

from heed.rank.diff import Move, RankingDiff, diff
from heed.rank.result import Ranking, Standing
from heed.rank.run import rank

__all__ = ["Move", "Ranking", "RankingDiff", "Standing", "diff", "rank"]
