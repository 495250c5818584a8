"""What a file is: its kind from its content (`files`), its facts by kind (`logs`, `policies`, `scores`, `histories`,
`checkpoints`), and the facts in words (`words`). Facts hold no text that could steer a terminal: it is made safe when
gathered."""
