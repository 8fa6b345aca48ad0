import warnings
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType
from pretrain import make_accelerator

from pretraining.options import DataOptions, ModelOptions, Options, OutputOptions, TrainingOptions

FOLDER = Path(__file__).parents[2] / "examples" / "accelerate"


@pytest.mark.parametrize("name, machines, processes, kind", [
    ("1_gpu", 1, 1, DistributedType.NO),
    ("8_gpus", 1, 8, DistributedType.MULTI_GPU),
    ("2_machines_8_gpus", 2, 16, DistributedType.MULTI_GPU),
])  # fmt: skip
def test_launch_files_are_what_accelerate_reads(name, machines, processes, kind):
    config = load_config_from_file(str(FOLDER / f"{name}.yaml"))
    assert (config.num_machines, config.num_processes, config.distributed_type) == (machines, processes, kind)
    assert config.mixed_precision == "bf16" and not config.use_cpu


def test_one_process_where_several_were_asked_for_means_a_warning(tmp_path, monkeypatch):
    """The variables are those that `accelerate launch --cpu --num_processes 2` sets."""
    training = TrainingOptions(use_cpu=True)
    options = Options(DataOptions(["any"]), ModelOptions(), training, OutputOptions(str(tmp_path)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_accelerator(options)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.warns(UserWarning, match="one process, not several; on a CPU torchrun"):
        assert make_accelerator(options).num_processes == 1
