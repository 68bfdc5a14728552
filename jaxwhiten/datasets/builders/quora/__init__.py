"""Quora duplicate questions."""
