"""Logs that other tools made: which of their columns are the contract's (`matching`, `contexts`), and how their values
become the contract's (`conversion`)."""
