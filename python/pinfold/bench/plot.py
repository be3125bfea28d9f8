"""A plot of the measurements, as SVG, without any library."""

from __future__ import annotations

import html
import math
from typing import Dict, List, Tuple

from .measure import Facts

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 40, 50
COLOURS = ["#0b6", "#07c", "#6a3", "#c30", "#e80", "#839", "#555", "#a64"]


def svg(facts: List[Facts]) -> str:
    """The median time of each subject by size, in microseconds and bytes, on logarithmic axes."""
    lines: Dict[str, List[Tuple[int, float]]] = {}
    for one in facts:
        lines.setdefault(one["subject"], []).append((one["bytes"], one["median_us"]))
    sizes = sorted({one["bytes"] for one in facts})
    times = [one["median_us"] for one in facts]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)
    first, last = math.log2(sizes[0]), max(math.log2(sizes[-1]), math.log2(sizes[0]) + 1)

    def across(size: int) -> float:
        return LEFT + (math.log2(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def up(time: float) -> float:
        share = (math.log10(time) - low) / (high - low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22">Round trip with a checked payload: median, microseconds</text>',
    ]
    for power in range(low, high + 1):
        y = up(10**power)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for size in sizes:
        x = across(size)
        out.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{shown(size)}</text>"
        )
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(f"{across(size):.1f} {up(time):.1f}" for size, time in sorted(points))
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for size, time in points:
            out.append(
                f'<circle cx="{across(size):.1f}" cy="{up(time):.1f}" r="3" fill="{colour}"/>'
            )
        y = TOP + 18 * number
        out.append(
            f'<rect x="{WIDTH - RIGHT + 20}" y="{y}" width="12" height="12" fill="{colour}"/>'
        )
        out.append(f'<text x="{WIDTH - RIGHT + 38}" y="{y + 11}">{html.escape(name)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def shown(size: int) -> str:
    """A number of bytes, as people write it."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:g} {unit}"
        size /= 1024  # type: ignore[assignment]
    return f"{size:g} GiB"
