"""Programs that score: `python -m eval.sts`."""
