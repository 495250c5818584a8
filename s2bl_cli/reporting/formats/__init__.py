"""The forms in which a report is written, one file each: a `Report` in, text out."""
