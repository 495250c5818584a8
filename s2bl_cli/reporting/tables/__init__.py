"""The shapes of tables, one file each: a frame of scores in, a `Table` out."""
