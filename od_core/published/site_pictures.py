"""Draw pictures of releases as PNG, for programs that show addresses of pages with a picture, but no SVG."""

from __future__ import annotations

import hashlib
import re
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

_ALIGNMENTS = {"start": "left", "middle": "center", "end": "right"}
_SHAPES = {"rect": "M{x} {y}h{width}v{height}h-{width}Z", "line": "M{x1} {y1}L{x2} {y2}", "path": "{d}"}
_SHAPES |= {"polyline": "M{points}", "polygon": "M{points}Z"}  # as paths of SVG
_STYLE = {"fill": "black", "stroke": "none", "stroke-width": "1", "text-anchor": "start", "opacity": "1"}


def draw_png(picture: str, earlier: Path) -> bytes:
    """Return an SVG picture, of elements that our templates have, as PNG; the same bytes with the same Matplotlib.

    The PNG states the SHA-256 of the SVG. If the file ``earlier`` states the same, its content is returned, because
    drawing takes a second.
    """
    digest = hashlib.sha256(picture.encode()).hexdigest()
    drawn = earlier.read_bytes() if earlier.is_file() else b""
    if digest.encode() in drawn:
        return drawn
    from matplotlib.figure import Figure
    from matplotlib.transforms import Affine2D

    drawing = ET.fromstring(picture)  # noqa: S314  # of this package
    width, height = int(drawing.attrib["width"]), int(drawing.attrib["height"])
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    _draw(drawing, axes, Affine2D(), _STYLE)
    file = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # the font lacks some scripts, and shows boxes
        figure.savefig(file, format="png", metadata={"Software": None, "Source": f"SVG {digest}"})
    return file.getvalue()


def _draw(element: ET.Element, axes: Any, place: Any, outer: dict[str, Any]) -> None:
    """Draw an element and those in it. ``place`` transforms its coordinates, and ``outer`` is what it inherits."""
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Affine2D

    given, style = {"x": "0", "y": "0", **element.attrib}, {**outer, **element.attrib}
    tag, points_per_unit = element.tag.rpartition("}")[2], 0.72 * place.get_matrix()[0, 0]  # 100 dots an inch
    line_width = points_per_unit * float(style["stroke-width"])
    if style.get("display") == "none":
        return
    if tag == "svg":
        left, top, width, height = map(float, given["viewBox"].split())
        scale = min(float(given["width"]) / width, float(given["height"]) / height)
        x = float(given["x"]) + (float(given["width"]) - scale * width) / 2
        y = float(given["y"]) + (float(given["height"]) - scale * height) / 2
        place = Affine2D().translate(-left, -top).scale(scale).translate(x, y) + place
        style["clip"] = Rectangle((left, top), width, height, transform=place + axes.transData)
    elif tag == "text":
        weight = "bold" if "font-weight" in style else "normal"
        font = {"family": "DejaVu Sans", "weight": weight, "size": points_per_unit * float(style["font-size"])}
        at = place.transform((float(given["x"]), float(given["y"])))
        text = axes.text(*at, element.text, color=style["fill"], fontdict=font, parse_math=False)
        text.set_ha(_ALIGNMENTS[style["text-anchor"]])
        text.set_path_effects([withStroke(foreground=style["stroke"], linewidth=line_width)])
    elif tag in _SHAPES or tag == "circle":
        patch = PathPatch(_trace(tag, given), fc=style["fill"], ec=style["stroke"], lw=line_width)
        patch.set(alpha=float(style["opacity"]), transform=place + axes.transData)
        axes.add_patch(patch).set_clip_path(style["clip"])
    for child in element:
        _draw(child, axes, place, style)


def _trace(tag: str, given: dict[str, str]) -> Any:
    """Return the Matplotlib path of an element. Paths of SVG have the commands M, L, Q, h, v and Z."""
    from matplotlib.path import Path

    if tag == "circle":
        return Path.circle((float(given["cx"]), float(given["cy"])), float(given["r"]))
    points, codes = [(0.0, 0.0)], [Path.MOVETO]
    for command, values in re.findall(r"([MLQhvZ])([^MLQhvZ]*)", _SHAPES[tag].format(**given)):
        row, (x, y) = [float(value) for value in re.findall(r"-?[\d.]+", values)], points[-1]
        row = {"h": [*[x + one for one in row], y], "v": [x, *[y + one for one in row]], "Z": [x, y]}.get(command, row)
        points += zip(row[::2], row[1::2], strict=True)
        codes += {"M": [Path.MOVETO], "Q": [Path.CURVE3, Path.CURVE3], "Z": [Path.CLOSEPOLY]}.get(command, [])
        codes += [Path.LINETO] * (len(points) - len(codes))
    return Path(points[1:], codes[1:])
