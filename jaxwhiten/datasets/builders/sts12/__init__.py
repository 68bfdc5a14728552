"""SemEval STS 2012: 3,108 scored pairs in five subsets."""
