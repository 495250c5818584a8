"""The figures of a report, one file each. matplotlib is imported when one is drawn, not before."""
