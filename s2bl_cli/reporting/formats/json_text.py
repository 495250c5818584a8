"""JSON: the report for programs. Numbers are unrounded and in the table's unit; a missing cell is null."""

import json

from s2bl_cli.reporting.table import Report, Table


def render(report: Report) -> str:
    document = {
        "tables": [_table(table) for table in report.tables],
        "health": [vars(health) for health in report.health],
        "claims": [vars(claim) for claim in report.claims],
        "commands": [list(commands) for commands in report.commands],
    }
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _table(table: Table) -> dict[str, object]:
    return {
        "caption": table.caption,
        "keys": list(table.key_titles),
        "columns": [{"name": name, "title": title} for name, title in table.columns.items()],
        "rows": [
            {
                "keys": dict(zip(table.key_titles, keys, strict=True)),
                "cells": {
                    name: None if cell.is_empty else cell.record()
                    for name, cell in zip(table.columns, cells, strict=True)
                },
            }
            for keys, cells in table.rows
        ],
        "notes": list(table.notes),
    }
