"""Every stage against reference numbers of the authors' code, where the reference data is at hand.

The data is not part of the project: `FAST_R2D2_GOLDEN` names its folder, by default `shared/golden` beside the
checkout.
"""
