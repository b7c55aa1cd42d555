"""`python -m bench [PART …]` runs every comparison, one after another, or only those named.

Measure on an idle machine.
"""

import sys

import torch

from bench import (
    coverage,
    debate,
    dials,
    efficient,
    families,
    known_truth,
    prompted,
    same_output,
    sampling,
    single_layer,
    transformer,
)

PARTS = {
    "single-layer": single_layer.run,
    "transformer": transformer.run,
    "sampling": sampling.run,
    "debate": debate.run,
    "efficient": efficient.run,
    "same-output": same_output.run,
    "known-truth": known_truth.run,
    "dials": dials.run,
    "coverage": coverage.run,
    "families": families.run,
    "prompted": prompted.run,
}

if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(PARTS)
    if unknown:
        sys.exit(f"There is no part {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}.")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
