"""All claims, in the order in which an audit reports them; one file per family."""

from heed.claims.agrees import AgreesGradient, AgreesLime, AgreesRemoval, Tracks
from heed.claims.causal import EfficientNecessary, EfficientShared, EfficientSufficient
from heed.claims.claim import Claim, Evidence, Verdict, judge
from heed.claims.determined import Exclusive, ExclusiveModel, Identified, Stable
from heed.claims.faithful import Competitive, Removes, Sensitive
from heed.claims.informative import Informative
from heed.claims.needed import Needed, Used
from heed.claims.plausible import Edited, Plausible
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
        EfficientNecessary,
        EfficientShared,
        AgreesGradient,
        AgreesRemoval,
        AgreesLime,
        Tracks,
        Signed,
        Informative,
        Removes,
        Competitive,
        Sensitive,
        Plausible,
        Edited,
        Robust,
    )
}

__all__ = ["CLAIMS", "Claim", "ClaimTest", "Evidence", "Study", "Verdict", "judge"]
