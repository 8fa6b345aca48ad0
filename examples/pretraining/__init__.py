"""The modules of `pretrain.py`."""
