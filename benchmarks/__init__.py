"""Benchmarks: ratios of two things that were measured side by side in one run."""
