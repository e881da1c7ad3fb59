"""Token-in-token-out: stitch agent turns into training samples on the exact sampled token ids."""
