"""Terminal-bench style harness: agents, trials, metrics and reports."""
