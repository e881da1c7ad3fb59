"""Dense per-assertion reward, task format, verifier reports, pools and task synthesis."""
