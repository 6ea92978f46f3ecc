"""Scores, methods, plans and the sampler: numpy and torch only."""
