"""The formats of a report, one file each: a function from a `Report` to text."""
