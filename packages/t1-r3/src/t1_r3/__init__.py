"""Rollout routing replay: train each token through the experts that produced it."""
