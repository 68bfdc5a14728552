"""SemEval STS 2014: 3,750 scored pairs in six subsets."""
