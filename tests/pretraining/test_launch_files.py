from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType

FOLDER = Path(__file__).parents[2] / "examples" / "accelerate"


@pytest.mark.parametrize(
    "name, machines, processes, kind",
    [
        ("1_gpu", 1, 1, DistributedType.NO),
        ("8_gpus", 1, 8, DistributedType.MULTI_GPU),
        ("2_machines_8_gpus", 2, 16, DistributedType.MULTI_GPU),
    ],
)
def test_launch_files_are_what_accelerate_reads(name, machines, processes, kind):
    config = load_config_from_file(str(FOLDER / f"{name}.yaml"))
    assert (config.num_machines, config.num_processes, config.distributed_type) == (machines, processes, kind)
    assert config.mixed_precision == "bf16" and not config.use_cpu
