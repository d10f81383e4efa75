"""Whether mcrouter's recipes are JSON, name only pools that they have, and only route handles that mcrouter has.

mcrouter itself is in no package: nobody has run them here.
"""

import json
import pathlib
import sys

# By mcrouter's "List of Route Handles", with the fields that each of them needs.
HANDLES = {
    "OperationSelectorRoute": {"operation_policies", "default_policy"},
    "FailoverRoute": {"children"},
    "MissFailoverRoute": {"children"},
    "AllSyncRoute": {"children"},
    "AllFastestRoute": {"children"},
    "WarmUpRoute": {"cold", "warm"},
    "ModifyExptimeRoute": {"action", "exptime", "target"},
}


def walk(where, route, pools):
    if isinstance(route, str):
        kind, _, pool = route.partition("|")
        if kind != "PoolRoute" or pool not in pools:
            sys.exit(f"{where}: {route!r} is no pool")
        return 1
    if route["type"] not in HANDLES or set(route) - {"type"} != HANDLES[route["type"]]:
        sys.exit(f"{where}: {route['type']} with {sorted(route)}")
    count = 0
    for name, value in route.items():
        if name == "operation_policies":
            count += sum(walk(where, child, pools) for child in value.values())
        elif name == "children":
            count += sum(walk(where, child, pools) for child in value)
        elif name not in ("type", "action", "exptime"):
            count += walk(where, value, pools)
    return count


recipes = sorted((pathlib.Path(__file__).resolve().parent.parent / "mcrouter").glob("*.json"))
if len(recipes) != 4:
    sys.exit(f"there are {len(recipes)} recipes for mcrouter")
for path in recipes:
    recipe = json.loads(path.read_text())
    used = walk(path.name, recipe["route"], recipe["pools"])
    if used < len(recipe["pools"]):
        sys.exit(f"{path.name}: a pool that no route uses")
print("mcrouter's recipes: JSON, pools and route handles are as they should be")
