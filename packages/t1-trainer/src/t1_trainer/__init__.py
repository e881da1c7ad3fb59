"""Train terminal agents with PPO on executed outcomes: composes the T1 packages into one trainer."""
