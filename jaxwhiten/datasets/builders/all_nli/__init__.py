"""Natural language inference: AllNLI (SNLI and MultiNLI), or the NLI files of a folder."""
