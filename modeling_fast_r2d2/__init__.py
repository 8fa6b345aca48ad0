"""Fast-R2D2: trees and vectors from raw text, as transformers models."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoProcessor,
)
from transformers.pipelines import PIPELINE_REGISTRY

from tokenization_fast_r2d2.processing_fast_r2d2 import FastR2D2Processor
from tokenization_fast_r2d2.trees import BinaryTree

from .checkpoints import DEFAULT_CHECKPOINT, bundled_checkpoint, download
from .configuration_fast_r2d2 import FastR2D2Config
from .modeling_fast_r2d2 import (
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
    FastR2D2PreTrainedModel,
)
from .parsing.tree_parser import TreeParser
from .parsing_pipeline import ConstituencyParsingPipeline
from .pretrained_model import parameter_groups

__version__ = "0.2.0"  # the one place where it stands

FastR2D2Config.register_for_auto_class()
AutoConfig.register("fast_r2d2", FastR2D2Config)
AutoModel.register(FastR2D2Config, FastR2D2Model)
AutoModelForPreTraining.register(FastR2D2Config, FastR2D2ForPreTraining)
# Of several classes, transformers takes the one that a checkpoint's `architectures` names, and else the first.
AutoModelForSequenceClassification.register(
    FastR2D2Config, (FastR2D2ForSequenceClassification, FastR2D2ForPairClassification)
)
AutoProcessor.register(FastR2D2Config, FastR2D2Processor)
PIPELINE_REGISTRY.register_pipeline(
    "constituency-parsing", ConstituencyParsingPipeline, pt_model=AutoModel, type="text",
    default={"model": (DEFAULT_CHECKPOINT, "main")},
)  # fmt: skip

__all__ = [
    "BinaryTree",
    "ConstituencyParsingPipeline",
    "FastR2D2Config",
    "FastR2D2ForConstituencyParsing",
    "FastR2D2ForPairClassification",
    "FastR2D2ForPreTraining",
    "FastR2D2ForSequenceClassification",
    "FastR2D2Model",
    "FastR2D2PreTrainedModel",
    "FastR2D2Processor",
    "TreeParser",
    "__version__",
    "bundled_checkpoint",
    "download",
    "parameter_groups",
]
