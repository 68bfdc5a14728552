"""The tests mirror the library; `programs` runs the programs."""
