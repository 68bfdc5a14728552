"""tensorflow-datasets builders, without TensorFlow: one package a data set, written as array records."""
