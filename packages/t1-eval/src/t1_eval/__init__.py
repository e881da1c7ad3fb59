"""Terminal-bench style harness: agents, trials, metrics and result files."""

from t1_eval.agent import (
    Agent,
    AgentLimits,
    AgentRun,
    AgentTurn,
    ScriptedAgent,
    StopReason,
    TokenAgent,
)
from t1_eval.engine import ChatFormat, Completion, Engine, GenerateRequest
from t1_eval.errors import EngineError, EvalError, ScoresError, TrialFailed
from t1_eval.metrics import Interval, mean_with_interval, paired_difference
from t1_eval.results import write_trial
from t1_eval.terminal import Observation, Terminal
from t1_eval.trial import Scoring, TrialResult, TrialRunner

__all__ = [
    "Agent",
    "AgentLimits",
    "AgentRun",
    "AgentTurn",
    "ChatFormat",
    "Completion",
    "Engine",
    "EngineError",
    "EvalError",
    "GenerateRequest",
    "Interval",
    "Observation",
    "ScoresError",
    "Scoring",
    "ScriptedAgent",
    "StopReason",
    "Terminal",
    "TokenAgent",
    "TrialFailed",
    "TrialResult",
    "TrialRunner",
    "mean_with_interval",
    "paired_difference",
    "write_trial",
]
