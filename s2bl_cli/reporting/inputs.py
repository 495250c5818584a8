"""The files of a report, told apart by what they say they are: scores, histories, and logs for figures."""

from collections.abc import Sequence

from s2bl_cli.contract.document import KIND_HISTORY, KIND_LOGS
from s2bl_cli.contract.history import read_history_files
from s2bl_cli.contract.input_files import InputFile, open_inputs
from s2bl_cli.contract.lineage import Step
from s2bl_cli.contract.logs.reading import Log
from s2bl_cli.contract.parquet_files import read_document
from s2bl_cli.contract.scores import read_scores_files
from s2bl_cli.errors import ContractError
from s2bl_cli.reporting.figures.figure import FigureData, LogPropensities
from s2bl_cli.reporting.selection import no_scores, selected_scores, with_settings


def read_inputs(
    names: Sequence[str], where: Sequence[str], *, with_figures: bool, with_logs: bool
) -> tuple[FigureData, list[Step]]:
    """What the files hold, and the lineages of the scores.

    Histories and logs are for figures: without one, they are files of the wrong kind. `with_logs` also takes logs that
    other tools made, which say of themselves nothing at all.
    """
    with open_inputs(names, folders=True) as files:
        kinds = [(file, _kind(file)) for file in files]
        histories = [file for file, kind in kinds if with_figures and kind == KIND_HISTORY]
        logs = [file for file, kind in kinds if (with_figures and kind == KIND_LOGS) or (with_logs and kind is None)]
        rest = [file for file in files if file not in histories and file not in logs]
        table, lineages = read_scores_files(rest) if rest else (None, [])
        scores = no_scores() if table is None else selected_scores(table, where)
        history = with_settings(read_history_files(histories)[0]) if histories else None
        return FigureData(scores, history=history, logs=tuple(map(_propensities, logs))), lineages


def _kind(file: InputFile) -> str | None:
    document = read_document(file)
    return None if document is None else str(document["kind"])


def _propensities(file: InputFile) -> LogPropensities:
    arrays = Log([file]).read(("propensity", "cost", "split"))
    train = ~arrays.is_test
    if not train.any():
        raise ContractError(f"{file.name}: it has no train rows, whose propensities could be shown")
    return LogPropensities(file.base_name, arrays.propensity[train], arrays.known[train])
