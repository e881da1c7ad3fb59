"""`report.html`: one file, no network, the numbers of `metrics.jsonl` and `summary.json` as pictures."""

from t1_trainer.report.page import write_report

__all__ = ["write_report"]
