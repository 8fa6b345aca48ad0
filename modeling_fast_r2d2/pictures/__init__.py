"""Pictures of trees and charts: SVG, gold and predicted trees side by side, and HTML reports."""

from .chart import draw_chart
from .comparison import draw_comparison
from .report import write_report
from .svg import draw_tree

__all__ = ["draw_chart", "draw_comparison", "draw_tree", "write_report"]
