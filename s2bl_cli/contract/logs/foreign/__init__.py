"""Logs that other tools made: matching their columns with the contract's (`matching`, `contexts`), and converting their
values (`conversion`)."""
