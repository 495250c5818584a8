"""The log file: one row a decision. Its columns (`schema`), other tools' names and forms for them
(`columns`, `canonical`), the rules for values (`checks`), and reading and writing."""
