"""`python -m s2bl_cli`: the same as the `s2bl` command."""

from s2bl_cli.app import main

main()
