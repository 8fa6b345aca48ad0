"""What other programs import first: the command ``fast-r2d2``, and spaCy's component.

They import the library only when they run, so that help appears at once, and pipelines of spaCy without our component
lose no time. Importing any module of ``modeling_fast_r2d2`` would import torch and transformers. So this folder is
installed as a package of its own, ``fast_r2d2_entry_points`` (see setup.py).
"""
