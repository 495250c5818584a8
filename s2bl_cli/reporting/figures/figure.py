"""What a figure is, what it is made from, and how it looks: readable in print without colour, and by the colour-blind.

Each method has a colour of Okabe and Ito's palette, a marker and a line style, and keeps them in every figure.
"""

import contextlib
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from s2bl_cli.errors import RunError, SettingError, one_line
from s2bl_cli.objectives.methods import METHODS
from s2bl_cli.reporting.selection import REFERENCES, no_scores

if TYPE_CHECKING:
    from matplotlib import axes, figure

    Axes = axes.Axes
    Drawing = figure.Figure
else:
    Axes = Drawing = Any  # matplotlib is imported when a figure is drawn, not before


Look = dict[str, Any]  # options of matplotlib's artists

SUFFIXES = ("svg", "png", "pdf")
MAX_PANELS = 16
_COLUMNS = 3
_DPI = 200

_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"),  # Okabe and Ito's
    *("#332288", "#882255", "#999933", "#44aa99", "#aa4499", "#117733", "#661100"),
    *("#6699cc", "#ddaa33", "#994f00", "#7f7f7f", "#5d3a9b", "#b2df8a"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "*")
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
REFERENCE_COLOUR = "#777777"  # seen on white and on black

_STYLE: dict[str, Any] = {
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.5,
    "errorbar.capsize": 2.5,
    "pdf.fonttype": 42,  # TrueType; some journals reject Type 3
    "svg.hashsalt": "s2bl",  # equal scores give equal bytes
    "text.parse_math": False,  # a $ in a name is printed as it is
}


@dataclass(frozen=True)
class LogPropensities:
    """The train rows of a log: the propensity of each, and whether its feedback is known."""

    name: str
    propensity: npt.NDArray[np.float32]
    known: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FigureData:
    """The inputs of a figure. Inputs that were not given are empty."""

    scores: pl.DataFrame = field(default_factory=no_scores)
    metric: str = ""
    history: pl.DataFrame = field(default_factory=pl.DataFrame)
    logs: tuple[LogPropensities, ...] = ()


@dataclass(frozen=True)
class Figure:
    title: str
    needs: str  # the required inputs, for messages
    can_be_drawn: Callable[[FigureData], bool]
    draw: Callable[[FigureData], Drawing]
    is_informative: Callable[[FigureData], bool] = lambda data: True  # if not, it is drawn only on request

    def applies(self, data: FigureData) -> bool:
        return self.can_be_drawn(data) and self.is_informative(data)


def looks(methods: Mapping[str, str]) -> dict[str, Look]:
    """Colour, marker and dashes of each line. A method has the same ones in every figure, unless another line of the
    figure uses them. Reference policies have no markers."""
    given: dict[str, Look] = {}
    free = list(range(max(len(_COLOURS), len(methods))))
    for name, method in methods.items():
        if method in REFERENCES:
            dashes = (0, (1, 2 + list(REFERENCES).index(method)))
            given[name] = {"color": REFERENCE_COLOUR, "marker": "", "linestyle": dashes}
        else:
            declared = list(METHODS).index(method) if method in METHODS else free[0]
            number = free.pop(free.index(declared) if declared in free else 0)
            given[name] = {
                "color": _COLOURS[number % len(_COLOURS)],
                "marker": _MARKERS[number % len(_MARKERS)],
                "linestyle": _LINES[number % len(_LINES)],
            }
    return given


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Import matplotlib and use our style. If it is not installed, the error says how to install it."""
    try:
        import matplotlib.style
    except ImportError as error:
        raise RunError(
            f"figures need matplotlib, which cannot be imported ({one_line(error, 80)}): pip install 's2bl[figures]'"
        ) from error
    matplotlib.set_loglevel("ERROR")  # no messages about font caches
    # after_reset: ignore the user's matplotlibrc
    with matplotlib.style.context(_STYLE, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # for names with letters that the font lacks
        yield


def saved(figure: Drawing, suffix: str, *, transparent: bool = False) -> bytes:
    """The bytes of the file, without a time stamp."""
    out = io.BytesIO()
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
    figure.savefig(out, format=suffix, dpi=_DPI, metadata=metadata, transparent=transparent)
    return out.getvalue()


def inline_svg(figure: Drawing, name: str, title: str) -> str:
    """The SVG as part of an HTML page: without prologue and comments, with ids that are unique on the page, and in the
    text and background colours of the page, which may be dark."""
    from html import escape

    text = saved(figure, "svg", transparent=True).decode()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace("#000000", "currentColor").replace("#ffffff", "Canvas")
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def panels(
    count: int, *, width: float = 3.6, height: float = 3.0, what: str = "panels", sharey: bool = False
) -> tuple[Drawing, list[Axes]]:
    """A figure with `count` panels, three per row, and space for a legend below."""
    from matplotlib.figure import Figure as NewDrawing

    if count > MAX_PANELS:
        raise SettingError(
            f"the figure would have {count} {what}, but at most {MAX_PANELS} are readable: choose with --where"
        )
    columns = 2 if count == 4 else min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    figure = NewDrawing(figsize=(max(4.6, width * columns), height * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel().tolist()
    for spare in axes[count:]:
        spare.set_axis_off()
    return figure, axes[:count]


def log_axis(axis: Axes) -> None:
    """Make the axis logarithmic, with powers of ten as plain numbers."""
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")


def legend_below(figure: Drawing, axes: Sequence[Axes]) -> None:
    """One legend for all panels."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    room = max(1, int(figure.get_figwidth() / (0.55 + 0.075 * max(map(len, entries)))))
    columns = math.ceil(len(entries) / math.ceil(len(entries) / room))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns)
