"""Trial directories in Harbor's layout, so that its tools can read what we ran.

    <folder>/<trial>/result.json, config.json      fields of Harbor's TrialResult
                     agent/turns.jsonl              commands, outputs, sampled ids and log-probs
                     verifier/{reward.txt, test-stdout.txt, t1_reward.json}

Harbor's reader drops keys it does not know, so what is ours has files of its own.
"""

import json
import uuid
from pathlib import Path
from typing import Any

from t1_eval.agent import AgentTurn
from t1_eval.trial import TrialResult

__all__ = ["write_trial"]

_NAMESPACE = uuid.UUID("6f1f5f0e-8c0f-5c36-9a43-0d5a3e3c1a55")


def write_trial(folder: Path, result: TrialResult) -> Path:
    """Write one trial's directory below `folder` and return it.

    Raises:
        OSError: the directory cannot be written.
    """
    path = folder / result.key
    (path / "agent").mkdir(parents=True, exist_ok=True)
    (path / "verifier").mkdir(exist_ok=True)
    config = {"task": {"path": result.task_id}, "trial_name": result.key}
    (path / "config.json").write_text(json.dumps(config))
    (path / "result.json").write_text(json.dumps(_harbor_result(path, result, config)))
    turns = "".join(json.dumps(_turn(turn)) + "\n" for turn in result.run.turns)
    (path / "agent" / "turns.jsonl").write_text(turns)
    (path / "verifier" / "test-stdout.txt").write_text(result.verifier_output)
    (path / "verifier" / "t1_reward.json").write_text(result.reward.model_dump_json())
    if result.reward.reward is not None:
        (path / "verifier" / "reward.txt").write_text(f"{result.reward.reward}\n")
    return path


def _harbor_result(path: Path, result: TrialResult, config: dict[str, Any]) -> dict[str, Any]:
    reward = result.reward.reward
    return {
        "id": str(uuid.uuid5(_NAMESPACE, result.key)),
        "task_name": result.task_id,
        "trial_name": result.key,
        "trial_uri": path.resolve().as_uri(),
        "task_id": {"path": result.task_id},
        "task_checksum": result.task_checksum,
        "config": config,
        "agent_info": {"name": "t1", "version": "0.1.0"},
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
    }


def _turn(turn: AgentTurn) -> dict[str, Any]:
    line = {"command": turn.command, "output": turn.output, "exit_code": turn.exit_code}
    if turn.tokens is not None:
        line |= {
            "prompt_tokens": len(turn.tokens.prompt_ids),
            "completion_ids": turn.tokens.completion_ids.tolist(),
            "logprobs": [round(float(x), 6) for x in turn.tokens.logprobs],
            "weight_version": turn.tokens.version_received,
            "finish_reason": turn.tokens.finish_reason.value,
        }
    return line
