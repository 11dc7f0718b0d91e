"""The rows of PLEAT_HOOKS, the one list of interposed functions, as they stand in the header."""

import re

from conftest import REPOSITORY

HEADER = (REPOSITORY / "torch_bridge" / "c_abi.h").read_text()
# Kind, member or formula, mangled name.
HOOKS = re.findall(r'^  (FUNCTION|OTHER_NAME|GRADIENT)\((\w+),(?: \\\n *| )"(\w+)"\)', HEADER, re.M)
SET_ENGINE_STUB = re.search(r'define PLEAT_SYMBOL_SET_ENGINE_STUB "(\w+)"', HEADER)[1]
