"""A page of sg-view, as a notebook shows it and as a file."""

from __future__ import annotations

import html


class Page:
    def __init__(self, source: str, height: int = 600) -> None:
        self.html, self.height = source, height

    def save(self, path: str) -> str:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)
        return path

    def _repr_html_(self) -> str:
        """In a frame of its own: its styles and scripts are not the notebook's."""
        return (
            f'<iframe style="width:100%;height:{self.height}px;border:1px solid #ccc" sandbox="allow-scripts" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )

    def __repr__(self) -> str:
        return "<a page of sg-view: save(path) writes it>"
