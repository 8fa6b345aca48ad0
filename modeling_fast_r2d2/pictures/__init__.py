"""Pictures of trees and charts: SVG, gold and predicted trees side by side, and HTML reports."""

from .report import draw_comparison, write_report
from .svg import draw_chart, draw_tree

__all__ = ["draw_chart", "draw_comparison", "draw_tree", "write_report"]
