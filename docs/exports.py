"""What a package of the library exports, for the API pages: the names that its `__init__.py` imports."""

import re

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Exports(griffe.Extension):
    """Lists the imports of a package as its exports, and shows examples in docstrings as code."""

    def on_module_members(self, *, mod, **kwargs):
        if mod.is_init_module and mod.exports is None:
            mod.exports = [name for name, member in mod.members.items() if member.is_alias]

    def on_instance(self, *, obj, **kwargs):
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
