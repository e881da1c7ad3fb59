"""The skills, one module per few families; `t1_reward.synthesis.catalogue` lists them."""
