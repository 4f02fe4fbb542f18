"""Bars in groups, as SVG; no library is needed."""

import html
import math

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 320, 50, 60, 30
COLOURS = ("#5b8def", "#9aa5b1", "#e3a857", "#2f9e63", "#b07cc6")


def text(x, y, words, anchor="middle", size=12):
    style = f'text-anchor="{anchor}" font-size="{size}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(words)}</text>'


def ticks(top):
    """About five round numbers from 0 up to at least `top`."""
    step = 10 ** math.floor(math.log10(top / 4))
    step *= next((f for f in (1, 2, 5) if top / (step * f) <= 5), 10)
    return [step * i for i in range(math.ceil(top / step) + 1)]


def bar_chart(title, bars, groups):
    """`groups`: name -> a value for each of `bars`."""
    marks = ticks(max(max(values) for values in groups.values()) or 1.0)
    scale = (HEIGHT - TOP - BOTTOM) / marks[-1]
    base = HEIGHT - BOTTOM
    parts = [text(WIDTH / 2, 20, title, size=15)]
    for mark in marks:
        y = base - mark * scale
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 10}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y + 4, f"{mark:g}", "end"))
    for i, name in enumerate(bars):
        x = LEFT + i * (WIDTH - LEFT) / len(bars)
        parts.append(f'<rect x="{x:.1f}" y="32" width="12" height="12" fill="{COLOURS[i]}"/>')
        parts.append(text(x + 18, 42, name, "start"))
    room = (WIDTH - LEFT - 10) / len(groups)
    width = room * 0.8 / len(bars)
    for g, (name, values) in enumerate(groups.items()):
        parts.append(text(LEFT + (g + 0.5) * room, base + 18, name))
        for i, value in enumerate(values):
            x, high = LEFT + (g + 0.1) * room + i * width, value * scale
            box = f'x="{x:.1f}" y="{base - high:.1f}" width="{width - 2:.1f}" height="{high:.1f}"'
            parts.append(f'<rect {box} fill="{COLOURS[i]}"/>')
            parts.append(text(x + width / 2 - 1, base - high - 4, f"{value:.2f}", size=10))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    white = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head + ' font-family="sans-serif">', white, *parts, "</svg>\n"])
