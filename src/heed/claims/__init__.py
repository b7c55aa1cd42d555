"""All claims, in the order in which an audit reports them."""

from heed.claims.claim import Claim, ClaimTest, Evidence, Study, Verdict, judge
from heed.claims.eraser import Competitive, Plausible, Removes
from heed.claims.jain_wallace import AgreesGradient, AgreesRemoval, Exclusive, Used
from heed.claims.lopardo import AgreesLime, Robust, Signed, Tracks
from heed.claims.naim_asher import (
    EfficientNecessary,
    EfficientShared,
    EfficientSufficient,
    Identified,
)
from heed.claims.sanity import Edited, Sensitive
from heed.claims.wiegreffe_pinter import ExclusiveModel, Informative, Needed, Stable

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
