"""The log file: one row a decision. Its columns (`schema`), other tools' names and forms for them
(`columns`, `canonical`), the rules for values (`checks`), how its propensities are distributed (`propensities`),
what no checksum covers (`footer`), and reading and writing."""
