"""Training programs: each reads a config, calls the library, and reads from top to bottom."""
