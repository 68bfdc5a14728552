"""One program a question, each timing the peers in the same run on the same input."""
