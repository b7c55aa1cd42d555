"""Algebra that knows no model: subsets, limits of LIME, null spaces, least norm, linear programs, regression."""
