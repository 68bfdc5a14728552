"""The record of each experiment: one file a config; `launch` starts the programs."""
