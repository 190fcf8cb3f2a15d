"""Tables of the architecture of a network, as text and HTML."""

from __future__ import annotations

from html import escape

LEGEND = (
    "nodes: grid of the layer; field, stride: in nodes of the layer below; sees: receptive field in pixels; "
    "inputs: of a node (> after PCA); expanded: size after the expansion; out: features per node"
)


def text_table(rows: list[dict[str, str]]) -> str:
    """Aligned columns and a legend."""
    table = [list(rows[0]), *([row[column] for column in rows[0]] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
    return "\n".join([*lines, f"({LEGEND})"])


def html_table(title: str, rows: list[dict[str, str]]) -> str:
    """The same in HTML."""
    cell = 'style="text-align:right;padding:2px 10px"'
    head = "".join(f"<th {cell}>{escape(column)}</th>" for column in rows[0])
    body = "".join("<tr>" + "".join(f"<td {cell}>{escape(v)}</td>" for v in row.values()) + "</tr>" for row in rows)
    return (
        f"<div><strong>{escape(title)}</strong><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<small>{escape(LEGEND)}</small></div>"
    )
