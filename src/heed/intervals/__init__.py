"""Intervals for statistics over documents, and how many claims are tested together.

Rows that belong together (copies of a text, documents with one id) are a group, and groups are what
is drawn. There are three kinds of intervals:

    studentised   bootstrap-t: how far resamples stray from the statistic, in their own standard
                  errors; all statistics of an audit share their resamples
    betting       for values within bounds, right for any number of documents: a mean is refused if
                  betting against it would have paid too well (Waudby-Smith and Ramdas, 2023)
    crossed       where models were trained again: other documents and other training seeds would
                  both give another statistic

`estimate` chooses the kind. `step_down` tests many claims so that the chance of any false decision
is at most 5 % (Romano and Wolf, 2005).
"""

from heed.intervals.betting import Betting, betting_sequence
from heed.intervals.crossed import Crossed
from heed.intervals.sample import Ends, Interval, Kind, Sample
from heed.intervals.studentised import RESAMPLES, Studentised
from heed.intervals.together import ERROR, MANY, estimate, step_down

__all__ = [
    "ERROR",
    "MANY",
    "RESAMPLES",
    "Betting",
    "Crossed",
    "Ends",
    "Interval",
    "Kind",
    "Sample",
    "Studentised",
    "betting_sequence",
    "estimate",
    "step_down",
]
