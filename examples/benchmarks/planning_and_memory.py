"""Measure the seconds that planning charts takes, and the memory that pretraining keeps for its backward pass.

    python examples/benchmarks/planning_and_memory.py                  # both, in half a minute
    python examples/benchmarks/planning_and_memory.py --only planning  # or memory

Times are medians of runs that take turns in one process. Scores are random, so that trees are deeper than a trained
parser's. `encoding_speed.py` times encoding.
"""

import argparse

import torch
from transformers import set_seed

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart
from timing.clock import medians


def plan(scores: torch.Tensor, lengths: torch.Tensor, window_size: int = 4):
    return plan_chart(merge_ranks(scores, lengths), lengths, window_size)


def measure_planning() -> None:
    batch = torch.randn(64, 26), torch.full((64,), 27)
    long = torch.randn(1, 16_383), torch.tensor([16_384])
    branch = torch.arange(16_383.0)[None], torch.tensor([16_384])
    times = medians({"64 sentences of 27 tokens": lambda: plan(*batch)}, repeats=30)
    times |= medians({"16,384 tokens, random scores": lambda: plan(*long)}, repeats=5)
    times |= medians({"16,384 tokens, one branch": lambda: plan(*branch)}, repeats=1)
    for name, seconds in times.items():
        print(f"plan, window 4, {name:30} {1000 * seconds:9.1f} ms")
    levels = len(plan(torch.randn(1, 499), torch.tensor([500])).level_sizes)
    print(f"levels of 500 tokens, random scores, window 4: {levels}")


def measure_memory() -> None:
    """Print the bytes per token that pretraining keeps for its backward pass."""
    set_seed(0)
    config = FastR2D2Config(hidden_size=128, num_attention_heads=4, intermediate_size=512, num_hidden_layers=2,
                            vocab_size=2000, parser_num_layers=2)  # fmt: skip
    model = FastR2D2ForPreTraining(config).train()
    per_token = {}
    for length in (100, 200, 400):
        kept: dict[int, int] = {}

        def remember(tensor, kept=kept):
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            output = model(torch.randint(20, 2000, (1, length)))
        per_token[length] = sum(kept.values()) / length
        del output
    print("kept for backward, bytes per token: "
          + ", ".join(f"n = {n}: {size:,.0f}" for n, size in per_token.items())
          + f"; n = 400 against n = 100: {per_token[400] / per_token[100]:.3f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["planning", "memory"], help="measure only one of the two")
    parser.add_argument("--threads", type=int, help="number of CPU threads; by default PyTorch's choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    set_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if options.only in (None, "planning"):
        measure_planning()
    if options.only in (None, "memory"):
        measure_memory()


if __name__ == "__main__":
    main()
