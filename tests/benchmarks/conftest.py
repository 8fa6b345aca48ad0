import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES / "benchmarks"), str(EXAMPLES)]
