"""Publication barrier, atomic checkpoint store, capacity plan and clocks for RL training systems."""
