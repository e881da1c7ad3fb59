"""What a finished run's files must say about its tasks and its temporary files, whatever it survived.

launched of step t   the cursor's ids, in its order, without gap or repetition
fate                 exactly one of: admitted, cancelled, invalid (an admitted trial that turned
                     out to have no verdict is listed as both, and counts as invalid)
trained              the samples of step t are those of its admitted trials, once each
"""

from collections import Counter
from itertools import groupby
from pathlib import Path

from running import records

from t1_reward import Pool
from t1_trainer.run_directory import RunDirectory
from t1_trainer.sample_files import load_samples
from t1_trainer.task_order import TaskCursor


def accounting_faults(run: Path, pool: Pool) -> list[str]:
    """Contradictions, one line each; none in a sound run."""
    config = RunDirectory.open(run, lock=False).config
    wanted = list(range(1, config.steps + 1))
    faults: list[str] = []
    for name in ("metrics.jsonl", "tasks.jsonl"):
        steps = [line["step"] for line in records(run / name)]
        if steps != wanted:
            faults.append(f"{name}: steps {steps}")
    cursor = TaskCursor()
    tasks = {line["step"]: line for line in records(run / "tasks.jsonl")}
    metrics = {line["step"]: line for line in records(run / "metrics.jsonl")}
    for step in wanted:
        launched, cursor = cursor.take(pool, config.seed, config.launched_trials)
        if step in tasks and step in metrics:
            faults += _faults_of_step(run, launched, tasks[step], metrics[step])
    return faults


def _faults_of_step(run: Path, launched: tuple[str, ...], line: dict, metrics: dict) -> list[str]:
    step, invalid = line["step"], [trial["task_id"] for trial in line["invalid"]]
    trained = [task for task in line["admitted"] if task not in invalid]
    fates = Counter([*trained, *line["cancelled"], *invalid])
    faults = [f"step {step}: {task} was lost" for task in launched if not fates[task]]
    faults += [f"step {step}: {task} has {n} fates" for task, n in fates.items() if n > 1]
    faults += [f"step {step}: {task} was never launched" for task in fates.keys() - {*launched}]
    if metrics["rollout/admitted"] != len(line["admitted"]):
        faults.append(f"step {step}: metrics count {metrics['rollout/admitted']} admitted trials")
    samples = load_samples(run / "samples" / f"step-{step:05d}.safetensors")
    # several samples of one trial follow each other, and no two of them are equal
    trials = [task for (_, task), _ in groupby((s.trial_key, s.task_id) for s in samples)]
    different = {(s.trial_key, s.tokens.tobytes()) for s in samples}
    if trials != trained or len(different) < len(samples):
        faults.append(f"step {step}: trained on other trials than those admitted")
    return faults


def unfinished_files(run: Path) -> list[str]:
    """Files and directories that are only there while something is being written."""
    return [
        str(path.relative_to(run))
        for path in run.rglob("*")
        if path.name.endswith(".tmp") or path.name.startswith((".writing-", ".deleting-"))
    ]
