"""The sample that ships with the package: not a benchmark."""
