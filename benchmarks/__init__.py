"""Ratios, both sides measured in one run: ``python -m benchmarks [name ...] [--quick]``."""
