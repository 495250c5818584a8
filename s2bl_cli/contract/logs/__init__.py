"""The log file: one row per decision.

Its columns (`schema`), the flags that name other columns (`columns`), reading (`reading`) from Parquet (`decoding`) in
the contract's layout (`canonical`) or another tool's (`foreign/`), the rules for values (`checks`), numpy arrays
(`arrays`), the distribution of propensities (`propensities`), and writing (`writing`).
"""
