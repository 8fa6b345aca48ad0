"""Fused kernels for Fast-R2D2, one file an op beside its torch reference. None yet: models run on plain torch."""
