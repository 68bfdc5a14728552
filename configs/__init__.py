"""The record of each experiment: one file per config."""
