"""The command line. One file for each noun; what a command needs is imported inside it, so that `odradek --help` is quick."""
