"""Describing files: the kind of a file (`files`), its facts by kind (`logs`, `policies`, `scores`, `histories`,
`checkpoints`), and the facts as printed text (`description`). Text in facts has no control characters: they are removed
when the facts are collected."""
