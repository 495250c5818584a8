"""s2bl: learn policies from logged decisions whose feedback is partly missing."""

__version__ = "0.1.0"
