"""The commands of `jaxwhiten`: functions whose signatures and docstrings are their flags and help."""
