"""`python -m odradek`: the program."""

from odradek.cli.main import main

main()
