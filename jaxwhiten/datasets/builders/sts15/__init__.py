"""SemEval STS 2015: 3,000 scored pairs in five subsets."""
