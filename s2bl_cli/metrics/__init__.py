"""What is measured of a policy on a log: metrics and estimators, each a descriptor. numpy only, no torch, no files."""
