"""The parts of `pretrain.py`: options, corpus, batches, optimiser, checkpoints, evaluation, reports, the loop."""
