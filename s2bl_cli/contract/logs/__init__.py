"""The log file: one row per decision.

Columns (`schema`), options for other column names (`columns`), reading (`reading`) from Parquet (`decoding`) in the
contract's layout (`canonical`) or another tool's (`foreign/`), checks of values (`checks`), numpy arrays (`arrays`),
the distribution of propensities (`propensities`), and writing (`writing`).
"""
