"""The embedded policy: config, model, tokenizer, chat template and their storage."""

from t1_trainer.policy.chat import ChatFormat
from t1_trainer.policy.config import MoEConfig
from t1_trainer.policy.model import ExpertSelection, MoEModel
from t1_trainer.policy.storage import PolicyFiles, load_policy, save_policy
from t1_trainer.policy.tokenizer import Tokenizer

__all__ = [
    "ChatFormat",
    "ExpertSelection",
    "MoEConfig",
    "MoEModel",
    "PolicyFiles",
    "Tokenizer",
    "load_policy",
    "save_policy",
]
