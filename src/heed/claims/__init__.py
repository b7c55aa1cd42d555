"""All claims, in the order in which an audit reports them; one file per family."""

from heed.claims.agrees import AgreesGradient, AgreesLime, AgreesRemoval, Tracks
from heed.claims.causal import (
    EfficientNear,
    EfficientNecessary,
    EfficientShared,
    EfficientSufficient,
    NullStep,
)
from heed.claims.claim import Claim, Evidence, Verdict
from heed.claims.determined import Exclusive, Identified
from heed.claims.faithful import Competitive, Removes, Sensitive, Suffices
from heed.claims.informative import Informative
from heed.claims.judging import Check, checks, judge
from heed.claims.needed import Needed, Used
from heed.claims.plausible import Edited, Plausible
from heed.claims.retrained import ExclusiveModel, Stable
from heed.claims.signed import Signed
from heed.claims.stable import Robust
from heed.claims.study import ClaimTest, Study

CLAIMS: dict[str, type[ClaimTest]] = {
    cls.claim.id: cls
    for cls in (
        Needed,
        Used,
        Exclusive,
        ExclusiveModel,
        Stable,
        Identified,
        EfficientSufficient,
        NullStep,
        EfficientShared,
        EfficientNecessary,
        EfficientNear,
        AgreesGradient,
        AgreesRemoval,
        AgreesLime,
        Tracks,
        Signed,
        Informative,
        Removes,
        Suffices,
        Competitive,
        Sensitive,
        Plausible,
        Edited,
        Robust,
    )
}

__all__ = [
    "CLAIMS",
    "Check",
    "Claim",
    "ClaimTest",
    "Evidence",
    "Study",
    "Verdict",
    "checks",
    "judge",
]
