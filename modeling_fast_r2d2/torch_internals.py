"""What is private in torch and is used all the same. Where torch has no such thing, public operations do.

Saved models carry this code and are loaded in versions of torch that do not exist yet.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)


def _find(path: str) -> Any:
    """What torch has under a dotted name; None if it has no such thing."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def backward_pass() -> int | None:
    """A number for the backward pass that is under way, -1 outside of one; None where torch does not tell."""
    number = _find("_C._current_graph_task_id")
    return None if number is None else number()


def is_transformed() -> bool:
    """Whether a functional transform or forward-mode derivative is under way, or torch does not tell."""
    level, transforms = _find("autograd.forward_ad._current_level"), _find("_C._functorch.peek_interpreter_stack")
    return level is None or transforms is None or level >= 0 or transforms() is not None


def has_hooks(module: nn.Module) -> bool:
    """Whether anything wants to see what enters or leaves a module, a hook or a replaced forward pass, or torch does
    not tell."""
    return any(getattr(module, name, True) for name in HOOKS) or "forward" in vars(module)


def has_global_hooks() -> bool:
    """Whether a hook wants to see what enters or leaves any module, or torch does not tell."""
    modules = _find("nn.modules.module")
    return any(getattr(modules, name, True) for name in GLOBAL_HOOKS)


def is_compiled(module: nn.Module) -> bool:
    """Whether a module was compiled in place, or torch does not tell."""
    return getattr(module, "_compiled_call_impl", True) is not None


@cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Whether `onednn_linear` works on this machine: x86 alone, since other processors were not measured."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX") or not torch.backends.mkldnn.is_available():
        return False
    if _find("ops.mkldnn._linear_pointwise") is None:
        return False
    has_bfloat16 = _find("ops.mkldnn._is_mkldnn_bf16_supported")
    return dtype == torch.float32 or (dtype == torch.bfloat16 and has_bfloat16 is not None and has_bfloat16())


def onednn_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None, gelu: bool = False) -> Tensor:
    """``F.linear``, then exact GELU if asked for, by oneDNN and without a gradient: what torch's compiler calls."""
    activation, algorithm = ("gelu", "none") if gelu else ("none", "")
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, activation, [], algorithm)
