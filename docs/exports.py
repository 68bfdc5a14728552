"""What a package of the library exports, for the API pages: the names that its `__init__.py` imports."""

import griffe


class Exports(griffe.Extension):
    """Lists the imports of a package as its exports."""

    def on_module_members(self, *, mod, **kwargs):
        if mod.is_init_module and mod.exports is None:
            mod.exports = [name for name, member in mod.members.items() if member.is_alias]
