"""Rollouts: the local engine, the process that runs trials, and its client."""
