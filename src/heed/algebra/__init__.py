"""Algebra that knows no model: subsets, limits of LIME, null spaces and their solvers, regression."""
