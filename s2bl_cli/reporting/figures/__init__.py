"""The figures of a report, one file each. matplotlib is imported only when a figure is drawn."""
