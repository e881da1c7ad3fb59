"""Sandboxes that never leak, and admission control: pacing, caps, deadlines, first-N admission, reclamation."""
