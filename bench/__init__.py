"""Speed beside the peers and beside the bare forward passes, always as ratios within one run."""
