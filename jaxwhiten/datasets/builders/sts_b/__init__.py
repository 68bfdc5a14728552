"""STS benchmark: 5,749 train, 1,500 dev and 1,379 test pairs."""
