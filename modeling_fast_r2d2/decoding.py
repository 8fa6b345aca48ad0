"""The methods by which a model gives trees."""

# The arguments by which each method asks a model for its trees; None asks the parser alone and encodes nothing.
METHODS: dict[str, dict[str, str] | None] = {
    "parser": None,  # "Fast-R2D2*" in the paper
    "chart": {"encoding": "chart"},  # "Fast-R2D2" in the paper
    "minimum_risk": {"encoding": "chart", "decoding": "minimum_risk"},  # `TreeDistribution.minimum_risk`
    "heuristic": {"encoding": "heuristic"},  # R2D2
}


def check_method(method: str) -> str:
    """The method itself; raises ValueError for an unknown one."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    return method


__all__ = ["METHODS", "check_method"]
