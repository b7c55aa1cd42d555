"""Algebra that knows no model: subsets, limits of LIME, null spaces, solvers, regression."""
