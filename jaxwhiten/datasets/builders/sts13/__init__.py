"""SemEval STS 2013 without SMT: 1,500 scored pairs in three subsets."""
