"""A plot of bandwidth by message size, as SVG: both axes logarithmic, a line a contender."""

import math
import statistics

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 480, 70, 190, 40, 50
COLOURS = {"pinfold": "#c0392b", "shm": "#2471a3", "tcp": "#7d8a8c", "own": "#239b56"}
DASHES = {"mpich": "", "openmpi": "6 3", "fabric": "2 3"}


def lines_of(runs):
    """For each contender, its medians by size, MB/s, over all runs whatever their class."""
    found = {}
    for run in runs:
        if run["group"] in ("mpi", "large", "libfabric"):
            for result in run["results"]:
                found.setdefault(run["contender"], {}).setdefault(result["size"], []).append(result["mb_s"])
    return {name: {size: statistics.median(all) for size, all in sizes.items()} for name, sizes in found.items()}


def bandwidth(runs):
    lines = lines_of(runs)
    sizes = sorted({size for line in lines.values() for size in line})
    values = [value for line in lines.values() for value in line.values() if value > 0]
    if not sizes or not values:
        return '<svg xmlns="http://www.w3.org/2000/svg"/>\n'
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    first, last = math.log2(sizes[0]), max(math.log2(sizes[-1]), math.log2(sizes[0]) + 1)

    def x(size):
        return LEFT + (math.log2(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(value):
        return HEIGHT - BOTTOM - (math.log10(max(value, 10 ** low)) - low) / max(1, high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="15">Bandwidth of MPI and libfabric by message size (medians)</text>']
    for power in range(low, high + 1):
        at = y(10 ** power)
        label = f"{10 ** power:g} MB/s" if power < 3 else f"{10 ** (power - 3):g} GB/s"
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for size in sizes:
        label = f"{size} B" if size < 1024 else f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB"
        out.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    for number, (name, line) in enumerate(sorted(lines.items())):
        level, carrier = name.split("-")
        style = f'stroke="{COLOURS[carrier]}" stroke-width="2" stroke-dasharray="{DASHES[level]}" fill="none"'
        points = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in sorted(line.items()))
        key, right = TOP + 10 + number * 18, WIDTH - RIGHT + 12
        out.append(f'<polyline points="{points}" {style}/>')
        out.append(f'<line x1="{right}" x2="{right + 30}" y1="{key}" y2="{key}" {style}/>')
        out.append(f'<text x="{right + 36}" y="{key + 4}">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"
