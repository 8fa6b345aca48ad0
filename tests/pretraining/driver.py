"""Runs `examples/pretrain.py` in a process of its own that can be killed at a chosen moment, and in several that work
together. A server that has imported the libraries forks them, so that each costs about four seconds, not fifteen."""

import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile

SMALL_MODEL = "hidden_size=16,intermediate_size=32,num_attention_heads=2,parser_embedding_size=8,parser_hidden_size=8"

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}  # libraries read them as they are imported
CONTEXT = multiprocessing.get_context("forkserver")
# The server does not know the paths of this process, so it cannot import `pretrain` itself, and would not say so.
LIBRARIES = ["accelerate", "datasets", "matplotlib.figure", "modeling_fast_r2d2.modeling_fast_r2d2", "nltk"]
CONTEXT.set_forkserver_preload(LIBRARIES)
_outputs: list[str] = []


def pretrain(arguments: list[str], at: tuple[str, float, str] | None = None, num_processes: int = 1) -> list[int]:
    """Run to the end, and return one exit code per process. `last_output` has the text that was printed.

    Args:
        at: ``(what, n, event)``: at the n-th step (``"step"``), just before the n-th checkpoint gets its name
            (``"publish"``) or before the n-th batch of validation (``"validation"``), ``event`` happens: ``"SIGKILL"``,
            ``"SIGTERM"``, ``"full disk"``, files that cannot grow, or ``"nan"``, losses that are not finite from then
            on. n seconds after the start (``"time"``) there is only ``"SIGALRM"``, which kills as well.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile("r", suffix=".log", encoding="utf-8") as log:
        workers = [
            CONTEXT.Process(target=_work, args=(arguments, at, rank, num_processes, port, log.name))
            for rank in range(num_processes)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        _outputs.append(log.read())
    return [worker.exitcode for worker in workers]


def last_output() -> str:
    """Both streams of all processes of the last run."""
    return _outputs[-1]


def _work(arguments, at, rank, num_processes, port, log) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)  # the server's own streams are those of whatever test came first
    os.dup2(file, 2)
    assert all(library in sys.modules for library in LIBRARIES)
    if num_processes > 1:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_processes, "LOCAL_WORLD_SIZE": num_processes,
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
        os.environ |= {name: str(value) for name, value in names.items()}
    import pretrain
    import torch

    torch.set_num_threads(1)
    if at:
        _arrange(*at)
    try:
        pretrain.main(arguments)
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(2)


def _arrange(what: str, number: float, event: str) -> None:
    if what == "time":
        signal.setitimer(signal.ITIMER_REAL, number)
        return
    from pretraining import checkpoints, evaluation, loop
    from pretraining.losses import Objective

    module, name = {
        "step": (loop, "take_step"), "publish": (checkpoints, "publish"), "validation": (evaluation, "send_to_device"),
    }[what]  # fmt: skip
    original, calls = getattr(module, name), 0

    def counted(*arguments, **options):
        nonlocal calls
        calls += 1
        if event == "nan" and calls >= number:
            Objective.forward = not_finite
        elif calls == number and event == "full disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        elif calls == number:
            os.kill(os.getpid(), getattr(signal, event))
        return original(*arguments, **options)

    forward = Objective.forward

    def not_finite(*arguments):
        return {name: value * float("nan") for name, value in forward(*arguments).items()}

    setattr(module, name, counted)
