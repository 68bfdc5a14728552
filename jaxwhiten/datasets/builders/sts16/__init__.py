"""SemEval STS 2016: 1,186 scored pairs in five subsets."""
