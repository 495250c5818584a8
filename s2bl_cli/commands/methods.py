"""`s2bl methods`: the named combinations that train knows."""

import sys

from s2bl_cli.commands.options import Json, console_of
from s2bl_cli.objectives.methods import METHODS, formula


def methods(json: Json = False) -> None:
    """List the methods that train knows, with formula and source.

    S are the rows with feedback, mean_a is over the rows with action a, π the policy's probability of the logged
    action, p its propensity, c its cost.
    """
    console = console_of(quiet=False, as_json=json, output=None)
    rows = {
        name: {
            "title": method.title,
            "risk": method.risk,
            "deep-risk": method.deep_risk or method.risk,
            "reg": method.reg,
            "reg-rows": method.reg_rows,
            "formula": formula(method),
            "summary": method.summary,
            "source": method.source,
        }
        for name, method in METHODS.items()
    }
    if json:
        console.summary(rows)
        return
    width = max(map(len, METHODS))
    for name, row in rows.items():
        deep = "" if row["deep-risk"] == row["risk"] else f" (with a resnet: {row['deep-risk']})"
        sys.stdout.write(f"{name.ljust(width)}  {row['formula']}\n")
        sys.stdout.write(f"{' ' * width}  {row['summary']}{deep}; {row['source']}\n")
