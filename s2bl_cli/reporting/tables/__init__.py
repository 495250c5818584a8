"""The layouts of tables, one file each: a function from a frame of scores to a `Table`."""
