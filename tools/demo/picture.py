"""Draws the two runs of the demo: memory and loss, as PNG (matplotlib) and as one HTML file (plotly).

Both panels share the axis of steps: a moment within a step lies between its number and the one before, so the
two runs can be compared step by step whatever their speed.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo import Run

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

GREY, BLUE, FAINT, INK = "#8a8f98", "#2563eb", "#d9dde3", "#1f2430"


def memory_series(run: Run, base: int) -> tuple[list[float], list[float]]:
    """(steps done, fractions within a step, GB above `base`) from the start of step 1 to the last step's end."""
    ends = [line["time"] for line in run.log]  # the first line is from before step 1
    where, sizes = [], []
    step = 0
    for when, size, _ in run.memory:
        if not ends[0] <= when <= ends[-1]:
            continue
        while when > ends[step + 1]:
            step += 1
        where.append(step + (when - ends[step]) / max(ends[step + 1] - ends[step], 1e-9))
        sizes.append(max(size - base, 0) / 1e9)
    return where, sizes


def envelope(where: list[float], sizes: list[float], window: float) -> tuple[list[float], list[float], list[float]]:
    """Lowest and highest size per window: (middle of the window, lowest, highest)."""
    groups: dict[int, list[float]] = {}
    for x, size in zip(where, sizes):
        groups.setdefault(int(x // window), []).append(size)
    keys = sorted(groups)
    return [(k + 0.5) * window for k in keys], [min(groups[k]) for k in keys], [max(groups[k]) for k in keys]


def loss_series(run: Run) -> tuple[list[int], list[float], list[float]]:
    """(steps, losses, mean of the steps around each)."""
    losses = [line["loss"] for line in run.steps]
    reach = len(losses) // 40
    smooth = []
    for i in range(len(losses)):
        near = min(reach, i, len(losses) - 1 - i)  # symmetric, so that the ends are not bent
        around = losses[i - near : i + near + 1]
        smooth.append(sum(around) / len(around))
    return [line["step"] for line in run.steps], losses, smooth


def peak_above(run: Run, base: int) -> float:
    return max(run.peak_bytes - base, 1) / 1e9


def headline(stock: Run, pleat: Run) -> tuple[str, str]:
    base = stock.base_bytes
    ratio = peak_above(stock, base) / peak_above(pleat, base)
    slower = (pleat.step_seconds / stock.step_seconds - 1) * 100
    return (
        f"The same training in {ratio:.1f}x less memory",
        f"{len(stock.steps)} steps of a 6-layer character GPT · step time {slower:+.0f} % · "
        f"final loss {stock.final_loss:.3f} stock, {pleat.final_loss:.3f} with Pleat",
    )


def draw(stock: Run, pleat: Run, bits: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes demo.png and demo.html into `folder` and returns their paths."""
    return [draw_png(stock, pleat, bits, folder / "demo.png"), draw_html(stock, pleat, bits, folder / "demo.html")]


def draw_png(stock: Run, pleat: Run, bits: str, path: pathlib.Path) -> pathlib.Path:
    base = stock.base_bytes
    labels = {"stock": "stock PyTorch", "pleat": f"Pleat, {bits} bits" if bits[0].isdigit() else f"Pleat, {bits}"}
    with plt.rc_context({"font.size": 11, "axes.edgecolor": FAINT, "text.color": INK, "axes.labelcolor": INK,
                         "xtick.color": INK, "ytick.color": INK, "font.family": "DejaVu Sans"}):
        figure, (above, below) = plt.subplots(2, 1, figsize=(10, 8.2), height_ratios=(1.15, 1), sharex=True)
        figure.subplots_adjust(left=0.085, right=0.97, top=0.865, bottom=0.075, hspace=0.17)
        title, under = headline(stock, pleat)
        figure.text(0.03, 0.955, title, fontsize=19, fontweight="bold", va="center")
        figure.text(0.03, 0.915, under, fontsize=11, color="#5b6270", va="center")

        steps_done = stock.steps[-1]["step"]
        for run, color in ((stock, GREY), (pleat, BLUE)):
            # A window a step or so: the rise and fall of forward and backward becomes a band.
            middle, low, high = envelope(*memory_series(run, base), max(steps_done / 120, 1.0))
            above.fill_between(middle, low, high, color=color, alpha=0.22, linewidth=0)
            above.plot(middle, high, color=color, linewidth=2)
            peak = peak_above(run, base)
            above.axhline(peak, color=color, linewidth=1, linestyle=(0, (4, 3)))
            above.annotate(f"{labels[run.name]}: peak {peak:.2f} GB", (1, peak), xycoords=("axes fraction", "data"),
                           xytext=(-4, 5), textcoords="offset points", ha="right", color=color, fontweight="bold")
        above.set_ylim(0, peak_above(stock, base) * 1.16)
        above.set_title("Memory above the loaded model, GB  (band: rise and fall within a step)", loc="left", fontsize=11.5)

        for run, color, width in ((stock, GREY, 5), (pleat, BLUE, 1.8)):
            steps, losses, smooth = loss_series(run)
            below.plot(steps, losses, color=color, linewidth=0.8, alpha=0.4)
            below.plot(steps, smooth, color=color, linewidth=width, label=labels[run.name], solid_capstyle="round",
                       alpha=0.55 if run is stock else 1)
        below.set_title("Training loss  (thin: every step, thick: smoothed)", loc="left", fontsize=11.5)
        below.set_xlabel("step")
        below.legend(frameon=False, loc="upper right")
        above.set_xlim(0, max(2, steps_done))
        above.tick_params(labelbottom=False)
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in (above, below):
            axes.grid(True, color=FAINT, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(length=0)
        figure.savefig(path, dpi=130, facecolor="white")
        plt.close(figure)
    return path


def draw_html(stock: Run, pleat: Run, bits: str, path: pathlib.Path) -> pathlib.Path:
    """One self-contained page; its colours follow the reader's light or dark setting."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    base = stock.base_bytes
    labels = {"stock": "stock PyTorch", "pleat": f"Pleat, bits:{bits}"}
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.1, row_heights=[0.55, 0.45],
        subplot_titles=("Memory above the loaded model (GB)", "Training loss"),
    )
    for run, color in ((stock, GREY), (pleat, BLUE)):
        where, sizes = memory_series(run, base)
        figure.add_trace(
            go.Scatter(x=[round(x, 3) for x in where], y=[round(s, 4) for s in sizes], name=labels[run.name],
                       line={"color": color, "width": 1.3}, fill="tozeroy", legendgroup=run.name,
                       hovertemplate="%{y:.2f} GB"), row=1, col=1,
        )
        figure.add_hline(y=peak_above(run, base), line={"color": color, "dash": "dash", "width": 1}, row=1, col=1,
                         annotation_text=f"peak {peak_above(run, base):.2f} GB", annotation_font_color=color)
        steps, losses, smooth = loss_series(run)
        figure.add_trace(
            go.Scatter(x=steps, y=losses, name=labels[run.name], legendgroup=run.name, showlegend=False,
                       line={"color": color, "width": 2}, hovertemplate="loss %{y:.4f}"), row=2, col=1,
        )
    figure.update_xaxes(title_text="step", row=2, col=1)
    figure.update_yaxes(rangemode="tozero", row=1, col=1)
    figure.update_layout(height=760, hovermode="x unified", margin={"t": 60, "l": 60, "r": 30, "b": 50},
                         paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
                         legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.08})
    title, under = headline(stock, pleat)
    body = figure.to_html(full_html=False, include_plotlyjs=True, div_id="runs", config={"displaylogo": False, "responsive": True})
    path.write_text(PAGE.replace("@TITLE@", title).replace("@UNDER@", under).replace("@BODY@", body), encoding="utf-8")
    return path


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Pleat demo</title>
<style>
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2430; --soft: #5b6270; }
@media (prefers-color-scheme: dark) { :root { --paper: #14161b; --ink: #e8eaee; --soft: #a3a9b5; } }
body { margin: 0 auto; max-width: 1080px; padding: 28px 20px; background: var(--paper); color: var(--ink);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 28px; } p { margin: 4px 0 18px; color: var(--soft); }
</style></head><body><h1>@TITLE@</h1><p>@UNDER@</p>
@BODY@
<script>
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function colour() {
  const ink = dark.matches ? "#e8eaee" : "#1f2430", grid = dark.matches ? "#30343d" : "#d9dde3";
  const paper = dark.matches ? "#14161b" : "#ffffff";
  const change = {"font.color": ink, "hoverlabel.bgcolor": paper, "hoverlabel.font.color": ink};
  for (const axis of ["xaxis", "yaxis", "xaxis2", "yaxis2"]) {
    change[axis + ".gridcolor"] = grid;
    change[axis + ".zerolinecolor"] = grid;
  }
  Plotly.relayout("runs", change);
}
colour();
dark.addEventListener("change", colour);
</script></body></html>
"""
