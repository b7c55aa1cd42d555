"""All diagnostics, in the order in which an audit reports them."""

from heed.diagnose.diagnostic import Claim, Diagnostic, Evidence, Study, Verdict, judge
from heed.diagnose.eraser import Competitive, Plausible, Removes
from heed.diagnose.jain_wallace import AgreesGradient, AgreesRemoval, Exclusive, Used
from heed.diagnose.lopardo import AgreesLime, Robust, Signed, Tracks
from heed.diagnose.naim_asher import EfficientNecessary, EfficientShared, EfficientSufficient, Identified
from heed.diagnose.sanity import Edited, Sensitive
from heed.diagnose.wiegreffe_pinter import ExclusiveModel, Informative, Needed, Stable

DIAGNOSTICS: dict[str, type[Diagnostic]] = {
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

__all__ = ["DIAGNOSTICS", "Claim", "Diagnostic", "Evidence", "Study", "Verdict", "judge"]
