"""The files: logs, policies, scores, and the lineage each carries. All reading and writing happens here."""
