"""Trial directories in Harbor's layout, so that its tools can read what we ran.

    <folder>/<key>/result.json, config.json      fields of Harbor's TrialResult
                   agent/turns.jsonl             commands, outputs, sampled ids and log-probs
                   verifier/{reward.txt, test-stdout.txt, t1_reward.json}

A directory appears whole or not at all, and replaces one of the same key once it is whole itself.
Log-probs are rounded to six decimals. The reward in Harbor's
files is the terminal outcome, 0 or 1: Harbor computes pass@k from nothing else. The dense reward and
all it depends on are in `t1_reward.json`, a `RewardRecord`, since Harbor's reader drops keys it does
not know. An invalid trial has no reward in any of them.
"""

import json
import shutil
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from t1_eval.agent import AgentRun, AgentTurn
from t1_eval.trial import TrialResult
from t1_reward import RewardRecord

__all__ = ["write_trial"]

_VERSION = version("t1-eval")
_LOGPROB_DIGITS = 6


def write_trial(folder: Path, result: TrialResult) -> Path:
    """Write one trial's directory below `folder` and return it.

    Raises:
        OSError: the directory cannot be written.
    """
    path = folder / result.key
    files = _files(path, result)
    partial = folder / f".{result.key}.partial"
    if partial.exists():
        shutil.rmtree(partial)
    for directory in (partial, partial / "agent", partial / "verifier"):
        directory.mkdir(parents=True)
    for name, content in files.items():
        # a Path per file costs a quarter more
        with open(f"{partial}/{name}", "wb") as file:  # noqa: PTH123
            file.write(content)
    if path.exists():
        shutil.rmtree(path)
    return partial.rename(path)


def _files(path: Path, result: TrialResult) -> dict[str, bytes]:
    config = {"task": {"path": result.task_id}, "trial_name": result.key}
    files = {
        "config.json": json.dumps(config),
        "result.json": json.dumps(_harbor_result(path, result, config)),
        "agent/turns.jsonl": "".join(json.dumps(_turn(turn)) + "\n" for turn in result.run.turns),
        "verifier/test-stdout.txt": result.verifier_output,
        "verifier/t1_reward.json": result.reward.model_dump_json(),
    }
    outcome = _outcome(result.reward)
    if outcome is not None:
        files["verifier/reward.txt"] = f"{outcome}\n"
    return {name: text.encode() for name, text in files.items()}


def _harbor_result(path: Path, result: TrialResult, config: dict[str, Any]) -> dict[str, Any]:
    outcome, uri = _outcome(result.reward), path.absolute().as_uri()
    return {
        # the same place has the same id, whatever process wrote it
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, uri)),
        "task_name": result.task_id,
        "trial_name": result.key,
        "trial_uri": uri,
        "task_id": {"path": result.task_id},
        "task_checksum": result.task_checksum,
        "config": config,
        "agent_info": {"name": "t1", "version": _VERSION},
        "agent_result": _harbor_agent_result(result.run),
        "verifier_result": None if outcome is None else {"rewards": {"reward": outcome}},
    }


def _harbor_agent_result(run: AgentRun) -> dict[str, Any]:
    sampled = [turn.tokens for turn in run.turns if turn.tokens is not None]
    counts = {
        "n_input_tokens": sum(len(tokens.prompt_ids) for tokens in sampled),
        "n_output_tokens": sum(len(tokens.completion_ids) for tokens in sampled),
    }
    metadata = {"stop_reason": run.stop_reason.value, "n_episodes": len(run.turns)}
    # a scripted agent used no tokens that could be counted, which is not 0 tokens
    return {**(counts if sampled else {}), "metadata": metadata}


def _outcome(reward: RewardRecord) -> int | None:
    return None if reward.reward is None else reward.binary


def _turn(turn: AgentTurn) -> dict[str, Any]:
    line: dict[str, Any] = {
        "schema_version": 1,
        "command": turn.command,
        "output": turn.output,
        "exit_code": turn.exit_code,
    }
    if turn.tokens is not None:
        logprobs = turn.tokens.logprobs.astype(np.float64).round(_LOGPROB_DIGITS)
        line |= {
            "prompt_tokens": len(turn.tokens.prompt_ids),
            "completion_ids": turn.tokens.completion_ids.tolist(),
            "logprobs": logprobs.tolist(),
            "weight_version": turn.tokens.version_received,
            "finish_reason": turn.tokens.finish_reason.value,
        }
    return line
