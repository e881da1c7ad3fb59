"""The parts of `t1_tito.audit`."""
